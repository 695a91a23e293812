"""Rounds of what is held: locks, semaphores, read-write locks, several at once, elections."""

from __future__ import annotations

from typing import Any

from interlock.errors import InterlockError
from interlock.testing.faults import Breakdown
from interlock.testing.scenario_run import ScenarioRun
from interlock.testing.simulated_cluster import ClientProcess


async def lock(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    async with run.inside(process, process.client.lock("r", timeout=limit), "r", limit) as lease:
        await run.work(process, lease)


async def cohort(run: ScenarioRun, process: ClientProcess) -> None:
    """Many in one process hold briefly, several times in a row: they pass the lock on among themselves."""
    limit = run.acquire_timeout()
    for _ in range(run.random.randrange(1, 9)):
        async with run.inside(process, process.client.lock("r", timeout=limit), "r", limit) as lease:
            await run.work(process, lease, 0.3 if run.chance(0.05) else 0.002)


async def unfair(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    async with run.inside(process, process.client.lock("r", timeout=limit, fair=False), "r", limit) as lease:
        await run.work(process, lease)


async def plain(run: ScenarioRun, process: ClientProcess) -> None:
    """acquire and release by hand, and the options of a lease."""
    limit = run.acquire_timeout()
    lost: list[Any] = run.memory.setdefault("lost", [])
    options: dict[str, Any] = run.random.choice(
        ({}, {"renew": False}, {"max_hold": 0.7 * run.cluster.ttl}, {"min_hold": 0.1 * run.cluster.ttl})
    )
    mutex = process.client.lock("r", on_lost=lost.append, **options)
    with process.calling("acquire", "r", limit) as outcome:
        lease = await mutex.acquire(timeout=-1 if limit is None else limit)
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await run.work(process, lease)
        if run.chance(0.2):
            await run.idle(process, 1.5)
        if run.chance(0.2):
            await lease.renew()
    finally:
        with process.calling("release", "r"):
            await lease.release()


def notified_once(run: ScenarioRun) -> None:
    """Every lost lease called `on_lost`, once."""
    lost = run.memory.get("lost", [])
    for lease in {id(lease): lease for lease in lost}.values():
        if lost.count(lease) > 1:
            run.broken("", f"on_lost was called more than once for {lease!r}")
    known = {lease._claim.id for lease in lost}
    living = {process.name for process in run.cluster.processes if not process.runtime.dead}
    for record in run.cluster.history.records:
        if record.call == "end" and record.kind == "info" and record.process in living:
            if record.attempt not in known:
                run.broken(record.process, f"on_lost was not called for {record.attempt}")


async def forgotten(run: ScenarioRun, process: ClientProcess) -> None:
    """Some holders end without a release, or are never renewed: the others get on all the same."""
    if run.chance(0.6):
        await lock(run, process)
        return
    limit = run.acquire_timeout()
    options: dict[str, Any] = run.random.choice(({}, {"renew": False}, {"max_hold": 0.7 * run.cluster.ttl}))

    async def take() -> None:
        mutex = process.client.lock("r", **options)
        try:
            with process.calling("acquire", "r", limit) as outcome:
                lease = await mutex.acquire(timeout=-1 if limit is None else limit)
                outcome.ok = lease is not None
            if lease is not None:
                await run.work(process, lease)
        except (InterlockError, Breakdown):
            pass  # the fault that caused it is judged by what it did to others

    job = process.runtime.spawn(
        f"forgets {run.cluster.next_call()}", take()
    )  # a name of its own: it owns its claim
    await process.runtime.wait(job.ended, None)


async def semaphore(run: ScenarioRun, process: ClientProcess) -> None:
    limit, permits = run.acquire_timeout(), run.random.randrange(1, 4)
    turnstile = process.client.semaphore("s", 3)
    with process.calling("acquire", "s", limit) as outcome:
        lease = await turnstile.acquire(timeout=limit, permits=permits)
        outcome.ok = bool(lease)
    if not lease:
        return
    try:
        await run.idle(process)
        process.check(lease)
        if permits > 1 and run.chance(0.5):
            process.note("shrink", "ok", lease, permits=permits - 1)  # from here on it counts on no more
            await turnstile.release(1)
            await run.idle(process)
            process.check(lease)
    finally:
        with process.calling("release", "s"):
            await lease.release()


async def rwlock(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    both = process.client.rwlock("w", timeout=limit)
    if run.chance(0.6):
        async with run.inside(process, both.read(), "w", limit) as lease:
            await run.idle(process)
            process.check(lease)
        return
    async with run.inside(process, both.write(), "w", limit) as lease:
        await run.work(process, lease)
        if run.chance(0.3):
            return
        async with both.read() as same:
            if same.token != lease.token:
                run.broken(process.name, f"re-entry changed the token from {lease.token} to {same.token}")
            await run.idle(process)


async def downgrade(run: ScenarioRun, process: ClientProcess) -> None:
    """A writer that becomes a reader without letting go."""
    if run.chance(0.5):
        await rwlock(run, process)
        return
    limit = run.acquire_timeout()
    both = process.client.rwlock("w", timeout=limit)
    with process.calling("acquire", "w", limit) as outcome:
        lease = await both.write().acquire()
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await run.work(process, lease)
        await both.read().acquire()  # refused if it was lost since: the write lock must still be given up
    except BaseException:
        with process.calling("release", "w"):
            await both.write().release()
        raise
    try:
        process.note("shrink", "ok", lease, permits=1)
        with process.calling("release", "w"):
            await both.write().release()
        await run.idle(process)
        process.check(lease)
    finally:
        with process.calling("release", "w"):
            await both.read().release()


async def rlock(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    again = process.client.rlock("r", timeout=limit)
    async with run.inside(process, again, "r", limit) as lease:
        await run.work(process, lease)
        async with again as inner:
            if inner.token != lease.token:
                run.broken(process.name, f"re-entry changed the token from {lease.token} to {inner.token}")
            await run.work(process, inner)
        await run.idle(process)
        await run.work(process, lease)


async def multilock(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    names = run.random.sample(["a", "b", "c"], run.random.randrange(1, 4))
    several = process.client.multilock(names, timeout=limit)
    async with run.inside(process, several, "+".join(sorted(names)), limit) as held:
        for lease in held.leases:
            await run.work(process, lease)


async def election(run: ScenarioRun, process: ClientProcess) -> None:
    limit = run.acquire_timeout()
    office = process.client.election("e")
    if run.chance(0.3):
        await observe(run, process)
        return
    with process.calling("acquire", "e", limit) as outcome:
        lease = await office.campaign(process.name, timeout=-1 if limit is None else limit)
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await run.work(process, lease)
        if run.chance(0.5):
            await office.proclaim(f"{process.name}!")
        leader = await office.leader()
        if run.weather.name in ("calm", "dying") and (leader is None or leader.token != lease.token):
            run.broken(process.name, f"{lease!r} leads, but {leader!r} is shown")
    finally:
        with process.calling("release", "e"):
            await office.resign()


async def observe(run: ScenarioRun, process: ClientProcess) -> None:
    """The leaders that one observer sees have rising tokens."""
    last = 0
    async for leader in process.client.election("e").observe(timeout=0.5 * run.cluster.ttl):
        if leader is not None:
            if leader.token < last:
                run.broken(process.name, f"observed token {leader.token} after {last}")
            last = leader.token
        if run.closing:
            return
