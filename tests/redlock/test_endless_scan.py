"""A node whose SCAN comes to no end: it counts as one that does not answer, and the list does not go on for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock.backends.redlock.algorithm.inspection import ResourceListing
from interlock.errors import StoreUnavailable


class Nodes:
    """Three nodes, of which `endless` never name the end of their scan."""

    def __init__(self, endless: int) -> None:
        self._endless = endless
        self.asked = 0
        self.transport = self
        self.members = SimpleNamespace(present=(0, 1, 2), majority=2, places=("one", "two", "three"))

    async def ask(self, request: Any, nodes: tuple[int], sure: Any, on_reply: Any, limits: Any) -> None:
        self.asked += 1
        # A test that fails must come to an end, too.
        cursor = "string:7" if nodes[0] < self._endless and self.asked < 20_000 else ""
        on_reply(nodes[0], ["", cursor, ("x",)], 0.0, 0.0)

    def too_few(self, what: str, said: dict[int, Any]) -> StoreUnavailable:
        return StoreUnavailable(f"{what}: {said}")


def listed(nodes: Any) -> list[str]:
    return drive(ResourceListing(lambda: 0.0).beyond(nodes, "", "", 1.0))


def test_a_minority_is_left_out() -> None:
    nodes = Nodes(endless=1)
    assert listed(nodes) == ["x"]
    assert nodes.asked < 2000


def test_a_majority_is_named_in_the_error() -> None:
    nodes = Nodes(endless=2)
    with pytest.raises(StoreUnavailable, match=r"two gave an answer .* SCAN comes to no end"):
        listed(nodes)
    assert nodes.asked < 4000
