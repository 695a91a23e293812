"""How long the asyncio panel waits: as long as the blocking one."""

from __future__ import annotations

from typing import Any, cast

from interlock.backends.redlock.links import Line, LinkPanel, Round
from interlock.backends.redlock.packing import Packing
from interlock.backends.redlock.requests import Inspect, Limits


class Clock:
    """All that a round asks of its panel."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


class Node:
    """All that a round asks of a line."""

    def __init__(self, node: int) -> None:
        self.node = node


def test_who_was_waited_for_beyond_the_usual_time_is_the_last_that_is() -> None:
    clock, heard = Clock(), list[int]()

    def hear(node: int, reply: Any, sent: float, received: float) -> bool:
        heard.append(node)
        return False

    asked = Round(
        *(cast(LinkPanel, clock), Packing("").pack(Inspect("x")), hear, range(5)), Limits(0.05, 0.5, 3)
    )
    for node, late in ((0, 0.01), (1, 0.02), (2, 0.1)):
        assert not asked.over
        clock.time = 100.0 + late
        asked.answered(cast(Line, Node(node)), [1])
    assert heard == [0, 1, 2]
    assert asked.over
    assert asked.waiting == {3, 4}


def test_within_the_usual_time_all_are_waited_for() -> None:
    clock = Clock()
    asked = Round(
        *(cast(LinkPanel, clock), Packing("").pack(Inspect("x")), lambda *_: False, range(5)),
        Limits(0.05, 0.5, 3),
    )
    clock.time += 0.04
    for node in range(4):
        asked.answered(cast(Line, Node(node)), [1])
    assert not asked.over
    asked.answered(cast(Line, Node(4)), [1])
    assert asked.over
