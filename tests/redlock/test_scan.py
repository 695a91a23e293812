"""Lists of names from nodes that hang, or whose SCAN comes to no end: both count as nodes that do not answer."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from interlock._core.drive import drive
from interlock.backends.redlock.algorithm.operators import ResourceListing
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Granted
from interlock.store import CONNECT_TIMEOUT
from interlock.testing.lag import at_most
from interlock.testing.servers.redlock import quorum
from tests.redlock.colours import COLOURS, run

ONE_CALL = 1.0  # seconds within which a call is over that hears too few nodes: twice the longest round


class Nodes:
    """Three nodes, of which `endless` never name the end of their scan, and `hangs` answer its first step only."""

    longest = 0.5

    def __init__(self, endless: int, hangs: int = 0) -> None:
        self._endless = endless
        self._hangs = hangs
        self.asked = 0
        self.waited = 0.0
        self.members = SimpleNamespace(majority=2, size=3, everyone=(0, 1, 2), labels=("one", "two", "three"))

    def once_connected(self, timeout: float) -> Timeouts:
        return Timeouts(timeout, timeout, 2)

    async def ask(self, request: Any, on_reply: Any, timeouts: Timeouts, to: Any = None) -> None:
        for node in self.members.everyone if to is None else to:
            self.asked += 1
            if request.cursor and node < self._hangs:
                self.waited += timeouts.longest
                continue
            # A test that fails must come to an end, too.
            goes_on = node < max(self._endless, self._hangs) and self.asked < 20_000
            on_reply(node, ["", "string:7" if goes_on else "", ("x",)], 0.0, 0.0)

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


async def held(store: RedlockStore, *names: str) -> None:
    for name in names:
        assert isinstance(await store.claim(Claim(name, uuid4().hex, 60.0)), Granted)


@COLOURS
def test_a_majority_that_hangs_costs_the_time_of_one_call(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await held(store, "x")
            with ExitStack() as hung:
                for node in (0, 1, 2):
                    hung.enter_context(servers[node].frozen())
                with at_most(ONE_CALL), pytest.raises(StoreUnavailable, match="a list of names needs 3 of 5"):
                    await store.scan("", "", 100)

        run(colour, servers.url(), main)


@COLOURS
def test_a_majority_that_lets_nobody_in_costs_the_connect_timeout_once(colour: str) -> None:
    with quorum(5) as servers, ExitStack() as hung:
        for node in (0, 1, 2):
            hung.enter_context(servers[node].frozen())

        async def main(store: RedlockStore) -> None:
            with at_most(CONNECT_TIMEOUT + ONE_CALL), pytest.raises(StoreUnavailable, match="needs 3 of 5"):
                await store.scan("", "", 100)

        run(colour, servers.url(), main)


@COLOURS
def test_a_minority_that_hangs_hides_no_name(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await held(store, "x", "y")
            with servers[1].frozen(), servers[3].frozen(), at_most(2 * ONE_CALL):
                assert await store.scan("", "", 100) == ["x", "y"]

        run(colour, servers.url(), main)


def test_nodes_that_hang_in_the_middle_are_given_up_once_no_majority_is_left() -> None:
    nodes = Nodes(endless=0, hangs=3)
    with pytest.raises(StoreUnavailable):
        listed(nodes)
    assert nodes.waited == 2 * nodes.longest
