"""Rounds of what is written and waited for: registers, latches, events, barriers, conditions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from interlock.errors import BrokenBarrier, StoreUnavailable
from interlock.testing.scenario_run import ScenarioRun
from interlock.testing.simulated_cluster import ClientProcess

LATCH = 1_000_000  # more than anybody counts down


async def register(run: ScenarioRun, process: ClientProcess) -> None:
    """A counter without a lock: what was confirmed is counted, once."""
    known = run.memory.setdefault("count", [0, 0])  # confirmed, unknown
    with process.calling("acquire", "n"):
        known[1] += 1
        await process.client.register("n").update(lambda value: (value or 0) + 1)
        known[1] -= 1
        known[0] += 1


def counted(run: ScenarioRun) -> None:
    confirmed, unknown = run.memory.get("count", [0, 0])
    row = run.cluster.server.space.registers.get("register\x1fn")
    value = int(row.value or 0) if row is not None else 0
    if not run.weather.forget and not confirmed <= value <= confirmed + unknown:
        run.broken("", f"{confirmed} updates confirmed, {unknown} unknown, but the counter is at {value}")


async def latch(run: ScenarioRun, process: ClientProcess) -> None:
    """A count that goes down once for each who says so."""
    known = run.memory.setdefault("count", [0, 0])
    with process.calling("acquire", "l"):
        known[1] += 1
        await process.client.latch("l", LATCH).count_down()
        known[1] -= 1
        known[0] += 1


def counted_down(run: ScenarioRun) -> None:
    confirmed, unknown = run.memory.get("count", [0, 0])
    row = run.cluster.server.space.registers.get("latch\x1fl")
    left = json.loads(row.value or "null")[1] if row is not None else LATCH
    if not run.weather.forget and not confirmed <= LATCH - left <= confirmed + unknown:
        run.broken("", f"{confirmed} confirmed, {unknown} unknown, but {LATCH - left} were counted down")


async def event(run: ScenarioRun, process: ClientProcess) -> None:
    """Whoever waits for a flag is woken when it is raised, though it may be lowered at once."""
    flag = process.client.event("f")
    if run.chance(0.4):
        with process.calling("acquire", "f"):
            await flag.wait()
    elif run.chance(0.5):
        await flag.set()
    else:
        await flag.clear()


async def raise_the_flag(run: ScenarioRun, process: ClientProcess) -> None:
    await until_answered(process, process.client.event("f").set)


async def until_answered(process: ClientProcess, act: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await act()
            return
        except StoreUnavailable:
            await process.runtime.sleep(0.1)


async def barrier(run: ScenarioRun, process: ClientProcess) -> None:
    """Nobody passes before enough have arrived; the dead count only as long as their presence lives."""
    meeting = process.client.barrier("b", 2)
    room, world = meeting._core.room, run.cluster.world
    room.longest = run.cluster.ttl
    there: dict[int, float] = run.memory.setdefault("there", {})  # visits, and until when each may count
    met: dict[int, int] = run.memory.setdefault("met", {})  # by visit: most who were there during it
    limit = (0.5 + run.random.random()) * run.cluster.ttl
    visit = run.memory["visits"] = run.memory.get("visits", 0) + 1
    there[visit], met[visit] = float("inf"), 0
    for other in met:
        met[other] = max(met[other], sum(until > world.time for until in there.values()))
    try:
        # An arrival whose fate nobody knows is withdrawn, which takes its time when the store is away.
        with process.calling("acquire", "b", limit if run.weather.mild else None):
            await meeting.wait(limit)
        if met[visit] < 2:
            run.broken(process.name, "passed a barrier of 2 alone")
    except BrokenBarrier:
        await meeting.reset()
    finally:
        del met[visit]
        if process.runtime.dead:
            there[visit] = world.time + 1.1 * run.cluster.outlives + run.weather.faults.long
        else:
            del there[visit]


async def condition(run: ScenarioRun, process: ClientProcess) -> None:
    """Producers and consumers: what is produced is consumed, and nobody waits beside a full box."""
    box = run.memory.setdefault("box", {"items": 0, "closed": False})
    ready = process.client.condition("c")
    ready._core.room.longest = run.cluster.ttl
    async with ready:
        if run.chance(0.5):
            box["items"] += 1
            await ready.notify()
            return
        with process.calling("acquire", "c", inside=True):
            await ready.wait_for(lambda: box["items"] > 0 or box["closed"])
        box["items"] = max(0, box["items"] - 1)


async def notify_everybody(run: ScenarioRun, process: ClientProcess) -> None:
    async def act() -> None:
        ready = process.client.condition("c")
        async with ready:
            run.memory.setdefault("box", {"items": 0})["closed"] = True
            await ready.notify_all()

    await until_answered(process, act)
