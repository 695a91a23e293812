"""Replies that come when a majority has answered: they count for nothing, hold up nobody, and tell the clocks of their nodes."""

from __future__ import annotations

import socket
from uuid import uuid4

import pytest

from interlock.backends.redlock.algorithm.clock import ClockWatch
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
from interlock.backends.redlock.wire.requests import Release
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import quorum, say, steady
from tests.patience import PATIENCE
from tests.redlock.colours import COLOURS, answered, connections, run


async def locked(store: RedlockStore, times: int = 1) -> None:
    for _ in range(times):
        claim = Claim("late-votes", uuid4().hex, 20.0)
        assert isinstance(await store.claim(claim), Granted)
        await answered(store)
        assert await store.release(claim.resource, claim.id)


@COLOURS
def test_a_client_knows_the_clocks_of_all_nodes_after_one_lock(colour: str) -> None:
    """A jump of a clock that it had never read before, it could not see."""

    async def main(store: RedlockStore) -> None:
        clocks = store._quorum.members.clocks
        await locked(store)
        clocks[:] = [ClockWatch() for _ in clocks]  # it has met the nodes; from here on only locks tell
        await locked(store)
        assert [clock.offset is not None for clock in clocks] == [True] * 5

    run(colour, steady().url("late-votes"), main)


@COLOURS
def test_a_node_that_has_lost_its_memory_is_noticed_also_if_it_answers_late(colour: str) -> None:
    """Or its quarantine would never begin, and the quorum would go on with a node less."""

    async def main(store: RedlockStore) -> None:
        members = store._quorum.members
        await locked(store)
        say(servers[4], "FLUSHALL")
        noticed = False
        for _ in range(2):  # it is one of the majority, or of the others
            claim = Claim("late-votes", uuid4().hex, 20.0)
            assert isinstance(await store.claim(claim), Granted)
            await answered(store)
            assert await store.release(claim.resource, claim.id)
            noticed = noticed or 4 in members.non_voting
        assert noticed

    with quorum() as servers:
        run(colour, servers.url("late-votes"), main)


def test_no_node_stays_behind_with_its_replies() -> None:
    """Or it would be taken for one that hangs after some locks."""

    async def main(store: RedlockStore) -> None:
        await locked(store, 100)
        assert max(len(one.due) for one in connections(store)) <= 2
        assert store._quorum.members.present == (0, 1, 2, 3, 4)

    run("sync", steady().url("late-votes"), main)


def test_replies_that_nobody_reads_hold_up_no_round() -> None:
    """A request that nobody waits for leaves a reply on every connection: then there is none to wait for but those."""

    async def main(store: RedlockStore) -> None:
        await locked(store)
        members = store._quorum.members
        await store._quorum.notify(Release("late-votes", "nobody"), members.everyone)
        await locked(store)
        assert not members.away

    run("sync", steady().url("late-votes"), main)


def test_a_connection_that_breaks_with_unread_replies_costs_nothing_but_that_node() -> None:
    """It was to be read first, and is gone by then."""

    async def main(store: RedlockStore) -> None:
        await locked(store)
        await answered(store)
        behind, *others = [one for one in connections(store) if one.due]
        for one in others:
            one.receive(None)
        behind.sock.shutdown(socket.SHUT_WR)  # what is sent from here on is refused
        await locked(store)

    run("sync", steady().url("late-votes"), main)


def test_a_release_that_a_node_read_before_its_vote_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more threads than connections, a release may go another way than its vote; the claim then stood for its whole ttl."""

    async def main(store: RedlockStore) -> None:
        recovery, members, transport = store._quorum.recovery, store._quorum.members, store._quorum.transport
        assert isinstance(transport, BlockingQuorumTransport)
        await locked(store)
        monkeypatch.setattr(recovery, "start", lambda: None)  # it would send it again at once
        claim, key = Claim("late-votes", uuid4().hex, 20.0), "late-voteslate-votes"
        assert isinstance(await store.claim(claim), Granted)
        await answered(store)
        entered = say(steady()[4], "GET", key)
        say(steady()[4], "DEL", key)  # as if the node had not read the vote yet
        transport._set_of_vote[claim.id] = -1  # as if its connections were in use
        assert await store.release(claim.resource, claim.id)
        await locked(store)  # which also reads what nobody has waited for
        assert (4, claim.id) in members.pending_releases
        say(steady()[4], "SET", key, entered, "PX", "20000")  # and now it does
        await store._quorum.retry_releases(4, PATIENCE)
        assert say(steady()[4], "EXISTS", key) == 0

    run("sync", steady().url("late-votes"), main)
