"""Rounds of what is written and waited for: registers, latches, events, barriers, conditions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from interlock.errors import BrokenBarrier, StoreUnavailable
from interlock.testing.play import Play
from interlock.testing.stage import Node

LATCH = 1_000_000  # more than anybody counts down


async def register(play: Play, node: Node) -> None:
    """A counter without a lock: what was confirmed is counted, once."""
    known = play.memory.setdefault("count", [0, 0])  # confirmed, unknown
    with node.calling("acquire", "n"):
        known[1] += 1
        await node.client.register("n").update(lambda value: (value or 0) + 1)
        known[1] -= 1
        known[0] += 1


def counted(play: Play) -> None:
    confirmed, unknown = play.memory.get("count", [0, 0])
    entry = play.stage.server.space.registers.get("register\x1fn")
    value = int(entry.value or 0) if entry is not None else 0
    if not play.weather.forget and not confirmed <= value <= confirmed + unknown:
        play.broken("", f"{confirmed} updates confirmed, {unknown} unknown, but the counter is at {value}")


async def latch(play: Play, node: Node) -> None:
    """A count that goes down once for each who says so."""
    known = play.memory.setdefault("count", [0, 0])
    with node.calling("acquire", "l"):
        known[1] += 1
        await node.client.latch("l", LATCH).count_down()
        known[1] -= 1
        known[0] += 1


def counted_down(play: Play) -> None:
    confirmed, unknown = play.memory.get("count", [0, 0])
    entry = play.stage.server.space.registers.get("latch\x1fl")
    left = json.loads(entry.value or "null")[1] if entry is not None else LATCH
    if not play.weather.forget and not confirmed <= LATCH - left <= confirmed + unknown:
        play.broken("", f"{confirmed} confirmed, {unknown} unknown, but {LATCH - left} were counted down")


async def event(play: Play, node: Node) -> None:
    """Whoever waits for a flag is woken when it is raised, though it may be lowered at once."""
    flag = node.client.event("f")
    if play.chance(0.4):
        with node.calling("acquire", "f"):
            await flag.wait()
    elif play.chance(0.5):
        await flag.set()
    else:
        await flag.clear()


async def raise_the_flag(play: Play, node: Node) -> None:
    await until_answered(node, node.client.event("f").set)


async def until_answered(node: Node, act: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await act()
            return
        except StoreUnavailable:
            await node.runtime.sleep(0.1)


async def barrier(play: Play, node: Node) -> None:
    """Nobody passes before enough have arrived; the dead count only as long as their presence lives."""
    meeting = node.client.barrier("b", 2)
    room, world = meeting._core.room, play.stage.world
    room.ttl = play.stage.ttl
    there: dict[int, float] = play.memory.setdefault("there", {})  # visits, and until when each may count
    met: dict[int, int] = play.memory.setdefault("met", {})  # by visit: most who were there during it
    limit = (0.5 + play.random.random()) * play.stage.ttl
    visit = play.memory["visits"] = play.memory.get("visits", 0) + 1
    there[visit], met[visit] = float("inf"), 0
    for other in met:
        met[other] = max(met[other], sum(until > world.time for until in there.values()))
    try:
        # An arrival whose fate nobody knows is withdrawn, which takes its time when the store is away.
        with node.calling("acquire", "b", limit if play.weather.mild else None):
            await meeting.wait(limit)
        if met[visit] < 2:
            play.broken(node.name, "passed a barrier of 2 alone")
    except BrokenBarrier:
        await meeting.reset()
    finally:
        del met[visit]
        if node.runtime.dead:
            there[visit] = world.time + 1.1 * room.ttl + play.weather.faults.long
        else:
            del there[visit]


async def condition(play: Play, node: Node) -> None:
    """Producers and consumers: what is produced is consumed, and nobody waits beside a full box."""
    box = play.memory.setdefault("box", {"items": 0, "closed": False})
    ready = node.client.condition("c")
    ready._core.room.ttl = play.stage.ttl
    async with ready:
        if play.chance(0.5):
            box["items"] += 1
            await ready.notify()
            return
        with node.calling("acquire", "c", inside=True):
            await ready.wait_for(lambda: box["items"] > 0 or box["closed"])
        box["items"] = max(0, box["items"] - 1)


async def notify_everybody(play: Play, node: Node) -> None:
    async def act() -> None:
        ready = node.client.condition("c")
        async with ready:
            play.memory.setdefault("box", {"items": 0})["closed"] = True
            await ready.notify_all()

    await until_answered(node, act)
