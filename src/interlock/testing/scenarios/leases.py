"""Rounds of what is held: locks, semaphores, read-write locks, several at once, elections."""

from __future__ import annotations

from typing import Any

from interlock.testing.play import Play
from interlock.testing.stage import Node


async def lock(play: Play, node: Node) -> None:
    limit = play.patience()
    async with play.inside(node, node.client.lock("r", timeout=limit), "r", limit) as lease:
        await play.work(node, lease)


async def cohort(play: Play, node: Node) -> None:
    """Many in one process hold briefly, several times in a row: they pass the lock on among themselves."""
    limit = play.patience()
    for _ in range(play.random.randrange(1, 9)):
        async with play.inside(node, node.client.lock("r", timeout=limit), "r", limit) as lease:
            await play.work(node, lease, 0.3 if play.chance(0.05) else 0.002)


async def unfair(play: Play, node: Node) -> None:
    limit = play.patience()
    async with play.inside(node, node.client.lock("r", timeout=limit, fair=False), "r", limit) as lease:
        await play.work(node, lease)


async def plain(play: Play, node: Node) -> None:
    """acquire and release by hand, and the options of a lease."""
    limit = play.patience()
    told: list[Any] = play.memory.setdefault("told", [])
    options: dict[str, Any] = play.random.choice(
        ({}, {"renew": False}, {"max_hold": 0.7 * play.stage.ttl}, {"min_hold": 0.1 * play.stage.ttl})
    )
    mutex = node.client.lock("r", on_lost=told.append, **options)
    with node.calling("acquire", "r", limit) as outcome:
        lease = await mutex.acquire(timeout=-1 if limit is None else limit)
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await play.work(node, lease)
        if play.chance(0.2):
            await play.idle(node, 1.5)
        if play.chance(0.2):
            await lease.renew()
    finally:
        with node.calling("release", "r"):
            await lease.release()


def told_once(play: Play) -> None:
    """Every lost lease called `on_lost`, once."""
    told = play.memory.get("told", [])
    for lease in {id(lease): lease for lease in told}.values():
        if told.count(lease) > 1:
            play.broken("", f"on_lost was called more than once for {lease!r}")
    known = {lease._claim.id for lease in told}
    living = {node.name for node in play.stage.nodes if not node.runtime.dead}
    for record in play.stage.history.records:
        if record.call == "end" and record.kind == "info" and record.process in living:
            if record.attempt not in known:
                play.broken(record.process, f"on_lost was not called for {record.attempt}")


async def semaphore(play: Play, node: Node) -> None:
    limit, permits = play.patience(), play.random.randrange(1, 4)
    turnstile = node.client.semaphore("s", 3)
    with node.calling("acquire", "s", limit) as outcome:
        lease = await turnstile.acquire(timeout=limit, permits=permits)
        outcome.ok = bool(lease)
    if not lease:
        return
    try:
        await play.idle(node)
        node.check(lease)
        if permits > 1 and play.chance(0.5):
            node.note("shrink", "ok", lease, permits=permits - 1)  # from here on it counts on no more
            await turnstile.release(1)
            await play.idle(node)
            node.check(lease)
    finally:
        with node.calling("release", "s"):
            await lease.release()


async def rwlock(play: Play, node: Node) -> None:
    limit = play.patience()
    both = node.client.rwlock("w", timeout=limit)
    if play.chance(0.6):
        async with play.inside(node, both.read(), "w", limit) as lease:
            await play.idle(node)
            node.check(lease)
        return
    async with play.inside(node, both.write(), "w", limit) as lease:
        await play.work(node, lease)
        if play.chance(0.3):
            return
        async with both.read() as same:
            if same.token != lease.token:
                play.broken(node.name, f"re-entry changed the token from {lease.token} to {same.token}")
            await play.idle(node)


async def downgrade(play: Play, node: Node) -> None:
    """A writer that becomes a reader without letting go."""
    if play.chance(0.5):
        await rwlock(play, node)
        return
    limit = play.patience()
    both = node.client.rwlock("w", timeout=limit)
    with node.calling("acquire", "w", limit) as outcome:
        lease = await both.write().acquire()
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await play.work(node, lease)
        await both.read().acquire()  # refused if it was lost since: the write lock must still be given up
    except BaseException:
        with node.calling("release", "w"):
            await both.write().release()
        raise
    try:
        node.note("shrink", "ok", lease, permits=1)
        with node.calling("release", "w"):
            await both.write().release()
        await play.idle(node)
        node.check(lease)
    finally:
        with node.calling("release", "w"):
            await both.read().release()


async def rlock(play: Play, node: Node) -> None:
    limit = play.patience()
    again = node.client.rlock("r", timeout=limit)
    async with play.inside(node, again, "r", limit) as lease:
        await play.work(node, lease)
        async with again as inner:
            if inner.token != lease.token:
                play.broken(node.name, f"re-entry changed the token from {lease.token} to {inner.token}")
            await play.work(node, inner)
        await play.idle(node)
        await play.work(node, lease)


async def multilock(play: Play, node: Node) -> None:
    limit = play.patience()
    names = play.random.sample(["a", "b", "c"], play.random.randrange(1, 4))
    several = node.client.multilock(names, timeout=limit)
    async with play.inside(node, several, "+".join(sorted(names)), limit) as held:
        for lease in held.leases:
            await play.work(node, lease)


async def election(play: Play, node: Node) -> None:
    limit = play.patience()
    office = node.client.election("e")
    if play.chance(0.3):
        await observe(play, node)
        return
    with node.calling("acquire", "e", limit) as outcome:
        lease = await office.campaign(node.name, timeout=-1 if limit is None else limit)
        outcome.ok = lease is not None
    if lease is None:
        return
    try:
        await play.work(node, lease)
        if play.chance(0.5):
            await office.proclaim(f"{node.name}!")
        leader = await office.leader()
        if play.weather.name in ("calm", "dying") and (leader is None or leader.token != lease.token):
            play.broken(node.name, f"{lease!r} leads, but {leader!r} is shown")
    finally:
        with node.calling("release", "e"):
            await office.resign()


async def observe(play: Play, node: Node) -> None:
    """The leaders that one observer sees have rising tokens."""
    last = 0
    async for leader in node.client.election("e").observe(timeout=0.5 * play.stage.ttl):
        if leader is not None:
            if leader.token < last:
                play.broken(node.name, f"observed token {leader.token} after {last}")
            last = leader.token
        if play.closing:
            return
