"""What a majority holds is entered on a node as soon as it is back, and is not prolonged by that."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from interlock.backends.redlock.requests import Request, Vote
from interlock.backends.redlock.store import RedlockStore
from interlock.model import Claim, Granted
from tests.redlock.colours import COLOURS, run, until
from tests.redlock.servers import Servers, quorum, say

LONG = 300.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


async def held_without(servers: Servers, store: RedlockStore, node: int) -> tuple[Claim, int]:
    """A claim that is held while one node is dead."""
    first = Claim("w", uuid4().hex, LONG)
    assert isinstance(await store.claim(first), Granted)
    servers[node].kill()
    claim = Claim("x", uuid4().hex, LONG)
    granted = await store.claim(claim)
    assert isinstance(granted, Granted)
    return claim, granted.token


async def mended(store: RedlockStore) -> None:
    """Wait until nobody looks after the nodes any more: all are well."""

    async def all_well() -> bool:
        await store.inspect("w")  # a blocking client sees its broken connections when it is next used
        job = store._mending._job
        return not store._quorum.members.ailing and (job is None or not job.alive())

    await until(store, all_well)


@COLOURS
def test_a_node_that_is_back_is_given_what_we_hold(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            claim, token = await held_without(servers, store, 0)
            for node in (1, 2):
                say(servers[node], "PEXPIRE", "x", "200000")  # a renewal would show
            servers[0].start()
            await mended(store)
            assert say(servers[0], "GET", "x").split(b"\n")[:2] == [claim.id.encode(), b"%d" % token]
            assert 0 < say(servers[0], "PTTL", "x") <= 1000 * LONG
            assert max(say(servers[node], "PTTL", "x") for node in (1, 2)) <= 200000
            assert await store.release("x", claim.id)

        run(colour, servers.url(), main)


@COLOURS
def test_a_lease_that_a_majority_misses_is_not_put_together_again(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await held_without(servers, store, 0)
            say(servers[1], "DEL", "x")
            servers[0].start()
            await mended(store)
            assert [say(server, "EXISTS", "x") for server in servers.all] == [0, 0, 1]

        run(colour, servers.url(), main)


@COLOURS
def test_what_is_released_while_it_is_entered_does_not_stay(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            claim, _ = await held_without(servers, store, 0)
            tell, told = store._quorum.tell, list[str]()

            async def late(request: Request, to: Collection[int]) -> None:
                if isinstance(request, Vote) and request.claim.id == claim.id:
                    store._quorum.members.held.pop(claim.id, None)  # the release has overtaken it
                await tell(request, to)
                told.append(type(request).__name__)

            store._quorum.tell = late  # type: ignore[method-assign]
            servers[0].start()
            await mended(store)
            assert told[-2:] == ["Vote", "Release"]

            async def gone() -> bool:
                return not say(servers[0], "EXISTS", "x")

            await until(store, gone)

        run(colour, servers.url(), main)
