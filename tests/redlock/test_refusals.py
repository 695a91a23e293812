"""What a claim that is not granted is told: that others hold it, or that too few nodes can say. The first waits, the second fails."""

from __future__ import annotations

from uuid import uuid4

import pytest

from interlock.backends.redlock.store import RedlockStore
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, Granted
from tests.redlock.colours import COLOURS, run
from tests.redlock.servers import quorum, say

LONG = 300.0


@COLOURS
@pytest.mark.parametrize(("nodes", "without"), [(3, 1), (5, 1), (5, 2)])
def test_who_waits_for_a_holder_waits_though_a_minority_has_no_vote(
    colour: str, nodes: int, without: int
) -> None:
    with quorum(nodes) as servers:

        async def main(store: RedlockStore) -> None:
            assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Granted)
            for node in range(without):
                say(servers[node], "FLUSHALL")
            for _ in range(30):  # in whatever order the nodes answer
                assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Busy)

        run(colour, servers.url(), main)


@COLOURS
def test_a_claim_fails_if_too_few_have_a_vote_to_tell_who_holds(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Granted)
            for node in (0, 1):
                say(servers[node], "FLUSHALL")
            with pytest.raises(StoreUnavailable, match="lost their memory"):
                await store.claim(Claim("x", uuid4().hex, LONG))

        run(colour, servers.url(), main)


@COLOURS
def test_a_clock_beyond_what_the_scripts_can_count_costs_no_token(colour: str) -> None:
    """They count in doubles: above 2**53 two numbers may be one."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            store._quorum.wall = lambda: 10**17  # the year 5138
            tokens = []
            for _ in range(5):
                claim = Claim("x", uuid4().hex, LONG)
                granted = await store.claim(claim)
                assert isinstance(granted, Granted)
                tokens.append(granted.token)
                await store.release("x", claim.id)
            assert tokens == sorted(set(tokens))
            assert tokens[-1] < 2**53

        run(colour, servers.url(), main)
