"""A release that a node was sent and may not have read is told again: it goes to all nodes, to the end."""

from __future__ import annotations

import select
from typing import Any
from uuid import uuid4

import pytest

from interlock._core.runtime import Job
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
from interlock.backends.redlock.transport.connections import ConnectionSet
from interlock.backends.redlock.wire.requests import Release, Vote
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import DURABLE, Servers, quorum, say
from tests.redlock.colours import COLOURS, run, until

LONG = 300.0


async def stood(servers: Servers, store: RedlockStore, node: int, there: bool) -> None:
    """Wait until a node has the lock, or no longer has it; as the node itself says, without asking the store."""

    async def is_so() -> bool:
        return bool(say(servers[node], "EXISTS", "x")) is there

    await until(store, is_so)


async def taken(store: RedlockStore, name: str = "x") -> Claim:
    claim = Claim(name, uuid4().hex, LONG)
    assert isinstance(await store.claim(claim), Granted)
    return claim


async def released_unread(servers: Servers, store: RedlockStore) -> None:
    """A lock is taken, and released while the first node reads nothing, and dies."""
    held = await taken(store)
    await stood(servers, store, 0, True)
    servers[0].freeze()
    assert await store.release("x", held.id)
    servers[0].kill()


@COLOURS
def test_a_node_killed_before_it_read_a_release_is_told_again(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await released_unread(servers, store)
            servers[0].start()
            assert say(servers[0], "EXISTS", "x") == 1
            other = await taken(store, "y")  # a blocking client sees its broken connections when it asks next
            await stood(servers, store, 0, False)
            assert await store.release("y", other.id)

        run(colour, servers.url(), main)


def test_asyncio_sees_the_broken_connection_though_nobody_asks() -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await released_unread(servers, store)
            servers[0].start()
            await stood(servers, store, 0, False)

        run("async", servers.url(), main)


def test_a_release_goes_the_way_of_its_vote() -> None:
    """A node that hangs reads its connections in any order when it goes on: a release must not come before its vote."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            transport = store._quorum.transport
            assert isinstance(transport, BlockingQuorumTransport)
            await taken(store, "w")
            with servers[0].frozen():
                held = await taken(store)  # the others grant it
                connections = transport._idle.pop()
                await store.release("v", uuid4().hex)  # another set, beside it
                transport._idle.insert(0, connections)
                assert await store.release("x", held.id)
                connection = connections.connections[0]
                assert connection is not None
                assert [type(packed.request) for packed in connection.due][-2:] == [Vote, Release]
            await stood(servers, store, 0, False)

        run("sync", servers.url(), main)


def test_a_connection_that_broke_has_the_others_checked() -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            transport = store._quorum.transport
            assert isinstance(transport, BlockingQuorumTransport)
            held = await taken(store)
            await stood(servers, store, 0, True)
            connections = transport._idle.pop()
            await store.inspect("x")  # another set, beside it
            transport._idle.append(connections)
            servers[0].freeze()
            assert await store.release("x", held.id)
            servers[0].kill()
            servers[0].start()
            transport._idle.reverse()
            assert transport._idle[-1] is not connections
            store._recovery.close()  # it would use the set by itself, sooner or later
            await taken(store, "y")
            assert (0, held.id) in store._quorum.members.pending_releases

        run("sync", servers.url(), main)


def test_a_connection_that_was_closed_behind_an_unread_reply_is_seen_to_be() -> None:
    """Or a release that went out on it is not told again, and a node that is well is called away."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await taken(store)
            transport = store._quorum.transport
            assert isinstance(transport, BlockingQuorumTransport)
            await store._quorum.notify(Release("x", "nobody"), (0,))
            connections = transport._idle[-1]
            connection = connections.connections[0]
            assert connection is not None
            assert connection.due
            say(servers[0], "CLIENT", "KILL", "TYPE", "normal")
            closed = select.poll()
            closed.register(connection.fd, select.POLLRDHUP)
            assert closed.poll(5000)
            connections.drop_closed()
            assert connections.connections[0] is None
            assert not connection.due  # its reply was there: nobody need be told again

        run("sync", servers.url(), main)


def test_connections_whose_check_was_interrupted_are_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply may have been taken and not been counted: from then on every one would pass for another's."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await taken(store)
            transport = store._quorum.transport
            assert isinstance(transport, BlockingQuorumTransport)
            other = transport._idle.pop()
            await store.inspect("x")  # another set, beside it
            transport._idle.insert(0, other)
            transport._idle[-1].broke = True

            def interrupted(connections: ConnectionSet) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(ConnectionSet, "drop_closed", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    await store.inspect("x")
            assert other not in transport._idle
            assert len(transport._slots) == len(transport._idle) == 1

        run("sync", servers.url(), main)


@COLOURS
def test_what_is_released_is_released_though_no_thread_can_be_had(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            held = await taken(store)

            def exhausted(name: str, work: Any) -> Job:
                raise RuntimeError("can't start new thread")

            servers[0].kill()
            store._runtime.spawn = exhausted  # type: ignore[method-assign]
            for _ in range(3):
                assert (await store.inspect("x")).holders  # which sees that a node is away
            assert await store.release("x", held.id)

        run(colour, servers.url(), main)


@COLOURS
def test_a_node_that_is_killed_again_before_it_is_told_is_told_in_the_end(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await released_unread(servers, store)
            for _ in range(3):
                servers[0].start()
                servers[0].freeze()
                await store.inspect("x")
                servers[0].kill()
            servers[0].start()
            await store.inspect("x")
            await stood(servers, store, 0, False)

        run(colour, servers.url(), main)
