"""Nodes far away: every lock can be had, also the first, and nobody is called away for the distance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.wire.requests import CheckIn
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, Granted, Renewal, Renewed
from interlock.store import CONNECT_TIMEOUT
from interlock.testing.lag import at_most
from interlock.testing.servers.proxy import proxies, through
from interlock.testing.servers.redlock import quorum, say, steady
from tests.redlock.colours import COLOURS, run, until

TRIPS = pytest.mark.parametrize("trip", [0.025, 0.08, 0.09, 0.15])


@contextmanager
def far_away(trip: float) -> Iterator[Callable[[str], str]]:
    """Gives the URL of the nodes with a prefix; they are that many seconds there and back away."""
    with proxies([server.port for server in steady().all], round_trip=trip) as ways:
        yield lambda prefix: through(ways, steady().url(prefix))


def used() -> str:
    """The prefix of a quorum that has been used before."""
    prefix = f"{uuid4().hex}:"
    with interlock.connect(steady().url(prefix)) as client, client.lock("x"):
        return prefix


async def pair(store: RedlockStore) -> None:
    claim = Claim("x", uuid4().hex, 30.0)
    assert isinstance(await store.claim(claim), Granted)
    assert await store.release("x", claim.id)


def acquired(colour: str, url: str, blocking: bool = True) -> bool:
    """Whether a client that knows nobody yet gets a lock at its first try."""

    async def main() -> bool:
        async with aio.connect(url) as client:
            if not blocking:
                return bool(await client.lock("x").acquire(blocking=False))
            async with client.lock("x", timeout=3.0):
                return True

    if colour == "async":
        return asyncio.run(main())
    with interlock.connect(url) as client:
        if not blocking:
            return bool(client.lock("x").acquire(blocking=False))
        with client.lock("x", timeout=3.0):
            return True


@TRIPS
@COLOURS
def test_the_first_lock_is_taken_from_far_away(colour: str, trip: float) -> None:
    with far_away(trip) as url:
        assert acquired(colour, url(used()))


@COLOURS
def test_the_first_lock_of_new_nodes_is_taken_from_far_away(colour: str) -> None:
    with far_away(0.09) as url:
        assert acquired(colour, url(f"{uuid4().hex}:"))


@TRIPS
@COLOURS
def test_a_first_lock_that_nobody_waits_for_is_taken_from_far_away(colour: str, trip: float) -> None:
    with far_away(trip) as url:
        assert acquired(colour, url(used()), blocking=False)


@COLOURS
def test_nobody_is_called_away_because_of_the_distance(colour: str) -> None:
    """A node that is away is not waited for: three that vote would be all there is between a holder and its loss."""

    async def main(store: RedlockStore) -> None:
        claim = Claim("x", uuid4().hex, 30.0)
        assert isinstance(await store.claim(claim), Granted)
        for _ in range(3):
            assert await store.renew([Renewal("x", claim.id, 30.0)]) == [Renewed(30.0)]
            assert isinstance(await store.claim(Claim("x", uuid4().hex, 30.0), 0.01), Busy)
            assert len((await store.inspect("x")).holders) == 1
            assert not store._quorum.members.away
        with suppress(StoreUnavailable):
            await store.release("x", claim.id, 0.0, 0.01)  # there is no time to hear anybody
        assert not store._quorum.members.away

    with far_away(0.09) as url:
        run(colour, url(used()), main)


# ---- nodes that hang ----------------------------------------------------------------------


@COLOURS
def test_a_node_that_hangs_costs_a_new_client_little(colour: str) -> None:
    with quorum(5) as servers:
        assert acquired(colour, servers.url())
        with servers[2].frozen():
            with at_most(CONNECT_TIMEOUT / 2):
                assert acquired(colour, servers.url())


@COLOURS
def test_an_attempt_to_connect_goes_on_for_the_next_request(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            with servers[2].frozen():
                for _ in range(20):
                    await pair(store)
                    await store._recovery._poll(CheckIn(read_only=True), 0.05)  # which waits for everybody

            async def back() -> bool:
                return all(state.votes for state in await store.status())

            await until(store, back)
            made = say(servers[2], "INFO", "stats").partition(b"total_connections_received:")[2]
            # A few for this test itself, and one for each connection set: not one for each request.
            assert int(made.partition(b"\r")[0]) - known < 8

        assert acquired(colour, servers.url())
        known = int(
            say(servers[2], "INFO", "stats").partition(b"total_connections_received:")[2].partition(b"\r")[0]
        )
        run(colour, servers.url(), main)


@COLOURS
def test_a_majority_that_hangs_is_waited_for_once(colour: str) -> None:
    """Connecting has its time, counted from the first try: or each of a caller's tries would take as long."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            # Whichever of them it is that waits: a connection that was made before they froze takes the first answer along.
            with servers[0].frozen(), servers[1].frozen(), at_most(2.0 + 1.8):
                for _ in range(3):
                    with pytest.raises(StoreUnavailable, match="needs 2 of 3 nodes"):
                        await store.claim(Claim("x", uuid4().hex, 30.0), 0.1)

        assert acquired(colour, servers.url())
        run(colour, servers.url(connect_timeout=2), main)
