"""What a majority holds is entered on a node as soon as it is back, and is not prolonged by that."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import cast
from uuid import uuid4

from interlock._core.drive import drive
from interlock.backends.redlock.algorithm.renewals import refill
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import OnReply, Renew, Request, Vote
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, ClaimAnswer, Granted, Renewal
from interlock.testing.servers.redis import Server
from interlock.testing.servers.redlock import DURABLE, Servers, quorum, say
from tests.redlock.colours import COLOURS, opened, run, until

LONG = 300.0


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
        job = store._recovery._job
        return not store._quorum.members.unhealthy and (job is None or not job.alive())

    await until(store, all_well)


async def missed_by(servers: Servers, store: RedlockStore, node: int) -> Claim:
    """A claim that one node, which is here, has not."""
    claim = Claim("x", uuid4().hex, LONG)
    assert isinstance(await store.claim(claim), Granted)
    for server in servers.all:

        async def there(server: Server = server) -> bool:
            return bool(say(server, "EXISTS", "x"))

        await until(store, there)
    say(servers[node], "DEL", "x")
    return claim


def anothers_claim(servers: Servers) -> ClaimAnswer:
    """What another client is told that asks for it, once a majority answers."""
    store = opened(servers.url())
    said: list[ClaimAnswer] = []

    async def answered() -> bool:
        try:
            said.append(await store.claim(Claim("x", uuid4().hex, LONG)))
        except StoreUnavailable:
            return False
        return True

    try:
        drive(until(store, answered))
    finally:
        drive(store.close())
    return said[0]


@COLOURS
def test_a_node_that_is_back_is_given_what_we_hold(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            claim, token = await held_without(servers, store, 0)
            for node in (1, 2):
                say(servers[node], "PEXPIRE", "x", "200000")  # a renewal would show
            servers[0].start()
            await mended(store)

            async def given() -> bytes | None:  # told, not waited for
                return cast(bytes | None, say(servers[0], "GET", "x"))

            assert (await until(store, given)).split(b"\n")[:2] == [claim.id.encode(), b"%d" % token]
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
            tell, told = store._quorum.notify, list[str]()

            async def late(request: Request, to: Collection[int]) -> None:
                if isinstance(request, Vote) and request.claim.id == claim.id:
                    store._quorum.members.held.pop(claim.id, None)  # the release has overtaken it
                await tell(request, to)
                told.append(type(request).__name__)

            store._quorum.notify = late  # type: ignore[method-assign]
            servers[0].start()
            await mended(store)
            assert told[-2:] == ["Vote", "Release"]

            async def gone() -> bool:
                return not say(servers[0], "EXISTS", "x")

            await until(store, gone)

        run(colour, servers.url(), main)


def test_a_refill_under_way_does_not_end_the_claim_that_follows_under_the_same_id() -> None:
    """Who is granted too late asks again under its id. A release for what was filled in before must not meet that vote."""
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            claim = await missed_by(servers, store, 0)
            members, ask = store._quorum.members, store._quorum.ask
            checked, voted = asyncio.Event(), asyncio.Event()

            async def in_turns(
                request: Request, on_reply: OnReply, timeouts: Timeouts, to: Collection[int] | None = None
            ) -> None:
                await ask(request, on_reply, timeouts, to)
                if request.__class__ is Renew:  # the refill has seen its majority
                    checked.set()
                    await voted.wait()
                elif request.__class__ is Vote:  # the new vote is counted
                    voted.set()
                    await refilled

            store._quorum.ask = in_turns  # type: ignore[method-assign]
            refilled = asyncio.ensure_future(refill(store._quorum, {0}, 1.0))
            await checked.wait()
            for server in servers.all:
                say(server, "DEL", "x")  # it lapses
            members.held.pop(claim.id)  # as the renewal that finds it gone does
            store._recovery.close()  # or it would enter the claim on the third before another asks
            servers[2].kill()
            again = await store.claim(claim)
            assert isinstance(again, Granted)
            servers[2].start()
            assert isinstance(await asyncio.to_thread(anothers_claim, servers), Busy)
            tokens = [say(server, "GET", "x").split(b"\n")[1] for server in servers.all[:2]]
            assert tokens == [b"%d" % again.token] * 2

        run("async", servers.url(), main)


@COLOURS
def test_a_note_changed_meanwhile_is_the_one_that_is_filled_in(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            claim = await missed_by(servers, store, 0)
            ask = store._quorum.ask

            async def changed(
                request: Request, on_reply: OnReply, timeouts: Timeouts, to: Collection[int] | None = None
            ) -> None:
                await ask(request, on_reply, timeouts, to)
                store._quorum.ask = ask  # type: ignore[method-assign]
                await store.renew([Renewal("x", claim.id, LONG, note="later")])
                say(servers[0], "DEL", "x")  # which the renewal has filled in by itself

            store._quorum.ask = changed  # type: ignore[method-assign]
            await refill(store._quorum, {0}, 1.0)

            async def filled_in() -> bytes | None:
                return cast(bytes | None, say(servers[0], "GET", "x"))

            assert (await until(store, filled_in)).endswith(b"\n5\nlater")

        run(colour, servers.url(), main)
