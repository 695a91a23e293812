"""How long the asyncio transport waits: as long as the blocking one."""

from __future__ import annotations

from typing import Any, cast

from interlock.backends.redlock.transport.aio import AsyncNodeConnection, AsyncQuorumTransport, Exchange
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.requests import Inspect
from interlock.errors import StoreUnavailable


class Clock:
    """All that a round asks of its transport."""

    def __init__(self) -> None:
        self.time = 100.0

        self.expires_at: list[float] = []

    def now(self) -> float:
        return self.time

    def expire_at(self, when: float) -> None:
        self.expires_at.append(round(when - 100.0, 6))


class Node:
    """All that a round asks of a connection."""

    inline_resume = None

    def __init__(self, node: int) -> None:
        self.node = node


def asking(clock: Clock, heard: list[int]) -> Exchange:
    """A round among five nodes, of whom three must be heard; they are usually heard within 0.05 s."""

    def on_reply(node: int, reply: Any, sent: float, received: float) -> bool:
        heard.append(node)
        return False

    timeouts = Timeouts(0.05, 0.5, 3)
    return Exchange(
        cast(AsyncQuorumTransport, clock), Packing("").pack(Inspect("x")), on_reply, range(5), timeouts
    )


def test_once_a_majority_is_heard_the_others_have_as_long_again() -> None:
    """Nodes far away are late alike: whoever comes right after the majority must not be called away."""
    clock, heard = Clock(), list[int]()
    asked = asking(clock, heard)
    for node, late in ((0, 0.09), (1, 0.095), (2, 0.1), (3, 0.19)):
        clock.time = 100.0 + late
        asked.on_reply(cast(AsyncNodeConnection, Node(node)), [1])
        assert not asked.over
    assert round(asked.until - 100.0, 6) == 0.2
    assert clock.expires_at == [0.2]
    assert heard == [0, 1, 2, 3]


def test_errors_are_no_answers() -> None:
    """Two nodes that are gone say so at once: the others still have all the time that a majority needs."""
    clock, heard = Clock(), list[int]()
    asked = asking(clock, heard)
    for node in (0, 1):
        asked.on_reply(cast(AsyncNodeConnection, Node(node)), StoreUnavailable("gone"))
    asked.on_reply(cast(AsyncNodeConnection, Node(2)), [1])
    assert round(asked.until - 100.0, 6) == 0.5
    assert heard == [0, 1, 2]


def test_nobody_is_waited_for_longer_than_any_request_may_take() -> None:
    clock = Clock()
    asked = asking(clock, [])
    for node, late in ((0, 0.1), (1, 0.2), (2, 0.4)):
        clock.time = 100.0 + late
        asked.on_reply(cast(AsyncNodeConnection, Node(node)), [1])
    assert round(asked.until - 100.0, 6) == 0.5


def test_within_the_usual_time_all_are_waited_for() -> None:
    clock = Clock()
    asked = asking(clock, [])
    clock.time += 0.02
    for node in range(4):
        asked.on_reply(cast(AsyncNodeConnection, Node(node)), [1])
    assert not asked.over
    assert round(asked.until - 100.0, 6) == 0.05
    asked.on_reply(cast(AsyncNodeConnection, Node(4)), [1])
    assert asked.over
