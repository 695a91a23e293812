"""A connection for threads on a socket whose other end a test plays: what leaves when."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.transport.aio import AsyncConnection, AsyncTransport
from interlock.backends.etcd.transport.blocking import DELAYED_SEND_S, BlockingConnection, SharedSocket
from interlock.backends.etcd.transport.connection import UNSENT_PART
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.grpc import framed
from interlock.backends.etcd.wire.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_STREAMS_BEFORE_QUEUE,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    literal,
)
from interlock.backends.etcd.wire.messages import RANGE
from interlock.errors import HeldUp
from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE

OPENING = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
PINGED = frame(PING, 0, 0, b"12345678")
Frame = tuple[int, int, bytes]


class Server:
    """The other end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def answer(self, stream: int, more: bytes = b"") -> None:
        trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream, literal(b"grpc-status", b"0"))
        self.send(
            frame(HEADERS, END_HEADERS, stream, OPENING)
            + frame(DATA, 0, stream, framed(b"answer"))
            + more
            + trailers
        )

    def rest(self) -> bytes:
        """Whatever has arrived."""
        self._sock.settimeout(0.05)
        data = b""
        try:
            while more := self._sock.recv(65536):
                data += more
        except OSError:
            pass  # there is no more
        return data

    def hear(self) -> list[Frame]:
        """The frames of one arrival: kind, flags and payload, without what belongs to the connection."""
        data = self._rest + self._sock.recv(65536)
        data, found = data.removeprefix(PREFACE), []
        while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
            found.append((data[3], data[4], data[9 : 9 + size]))
            data = data[9 + size :]
        self._rest = data
        return [one for one in found if one[0] not in (SETTINGS, WINDOW_UPDATE)]


@pytest.fixture
def ends() -> Iterator[tuple[BlockingConnection, Server, Credentials]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    credentials = Credentials("user", "password")
    connection = BlockingConnection(Endpoint("h", 1), credentials, SharedSocket(ours), tls=False)
    with theirs:
        server = Server(theirs)
        server.send(frame(SETTINGS, 0, 0))
        yield connection, server, credentials
        connection.end("over")


def ask(connection: BlockingConnection) -> bytes:
    return drive(connection.call(RANGE, b"question", PATIENCE), nested=True)


def heard(server: Server, kind: int) -> list[Frame]:
    """What arrives until there is a frame of this kind."""
    found: list[Frame] = []
    while kind not in [one[0] for one in found]:
        found += server.hear()
    return found


def test_a_ping_is_answered_while_a_call_waits(ends: tuple[BlockingConnection, Server, Credentials]) -> None:
    connection, server, _ = ends
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, connection)
        heard(server, DATA)
        server.send(PINGED)
        assert heard(server, PING) == [(PING, ACK, b"12345678")]
        server.answer(1)
        assert asked.result() == b"answer"


def test_a_ping_is_answered_however_much_arrives(
    ends: tuple[BlockingConnection, Server, Credentials],
) -> None:
    """A connection that is never silent must not keep the answer to itself: the server would take it for dead."""
    connection, server, _ = ends
    server.send(PINGED)
    now = time.monotonic()
    for after in (
        0.0,
        0.4 * DELAYED_SEND_S,
        0.8 * DELAYED_SEND_S,
        1.2 * DELAYED_SEND_S,
        1.6 * DELAYED_SEND_S,
    ):
        server.send(frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"))
        connection._pump(now + after, 1.0)
    assert not connection._core.pongs
    assert heard(server, PING) == [(PING, ACK, b"12345678")]


def test_the_answer_to_a_ping_leaves_behind_the_next_request(
    ends: tuple[BlockingConnection, Server, Credentials],
) -> None:
    connection, server, _ = ends
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, connection)
        heard(server, DATA)
        server.answer(1, more=PINGED)
        asked.result()
        asked = pool.submit(ask, connection)
        assert [kind for kind, *_ in heard(server, PING)] == [HEADERS, DATA, PING]
        server.answer(3)
        asked.result()


def test_each_request_has_the_token_of_the_last_login(
    ends: tuple[BlockingConnection, Server, Credentials],
) -> None:
    connection, server, credentials = ends
    with ThreadPoolExecutor(1) as pool:
        for number, token in enumerate((b"first", b"second", b"")):
            credentials.accept(token) if token else credentials.forget(credentials.number)
            asked = pool.submit(ask, connection)
            head = heard(server, DATA)[0][2]
            server.answer(2 * number + 1)
            asked.result()
            assert [one for one in (b"first", b"second") if one in head] == [token] * bool(token)


# ---- crowds -----------------------------------------------------------------------------


def test_a_low_priority_call_that_was_not_sent_is_given_up_while_the_server_would_have_time(
    ends: tuple[BlockingConnection, Server, Credentials],
) -> None:
    """It says nothing about the server, and has had no effect."""
    connection, server, _ = ends
    with ThreadPoolExecutor(MAX_STREAMS_BEFORE_QUEUE) as pool:
        under_way = [pool.submit(ask, connection) for _ in range(MAX_STREAMS_BEFORE_QUEUE)]
        found: list[Frame] = []
        while sum(kind == DATA for kind, _, _ in found) < MAX_STREAMS_BEFORE_QUEUE:
            found += server.hear()
        began = time.monotonic()
        with pytest.raises(HeldUp, match="not sent"):
            drive(connection.call(RANGE, b"late", 0.2, low_priority=True), nested=True)
        assert time.monotonic() - began >= 0.2 * UNSENT_PART
        assert not connection._core._low_priority
        for n in range(MAX_STREAMS_BEFORE_QUEUE):
            server.answer(1 + 2 * n)
        assert [asked.result() for asked in under_way] == [b"answer"] * MAX_STREAMS_BEFORE_QUEUE
    assert b"late" not in server.rest()


def test_the_tasks_that_wait_their_turn_are_not_sent_when_their_time_is_up() -> None:
    """All have the same deadline. The first ones to be given up made room for the next, which were sent when nobody waited for them."""

    async def crowd(sock: socket.socket) -> list[BaseException | bytes]:
        connection = AsyncConnection(Endpoint("h", 1), Credentials("", ""), tls=False)
        await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock)
        calls = [
            connection.call(RANGE, b"question", 0.3, low_priority=True)
            for _ in range(4 * MAX_STREAMS_BEFORE_QUEUE)
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        connection.end("over")
        return found

    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    with theirs:
        server = Server(theirs)
        server.send(frame(SETTINGS, 0, 0))
        found = asyncio.run(crowd(ours))
        assert [isinstance(error, HeldUp) for error in found] == [False] * MAX_STREAMS_BEFORE_QUEUE + [
            True
        ] * 3 * MAX_STREAMS_BEFORE_QUEUE
        assert server.rest().count(b"question") == MAX_STREAMS_BEFORE_QUEUE


def test_tasks_that_ask_at_the_moment_of_connecting_share_one_line(cluster: EtcdCluster) -> None:
    """One that came after the attempt had ended, and before this was noted, connected once more; nobody closed the first connection."""

    async def crowd() -> None:
        endpoint = Endpoint("127.0.0.1", cluster.members[0].port)
        transport = AsyncTransport(Address((endpoint,)), Credentials("", ""))

        async def ask_in_each_turn_of_the_loop() -> None:
            while not asking.done():
                connections.append(asyncio.create_task(transport.connection(PATIENCE)))
                await asyncio.sleep(0)

        connections = [asyncio.create_task(transport.connection(PATIENCE))]
        asking = connections[0]
        await ask_in_each_turn_of_the_loop()
        assert len({connection for connection, _ in await asyncio.gather(*connections)}) == 1
        await transport.close()

    asyncio.run(crowd())


def test_a_line_that_was_replaced_is_closed_with_the_client(cluster: EtcdCluster) -> None:
    """A server that goes away takes no new calls, and may answer those under way for a long time."""

    async def replaced() -> None:
        endpoint = Endpoint("127.0.0.1", cluster.members[0].port)
        transport = AsyncTransport(Address((endpoint,)), Credentials("", ""))
        first, _ = await transport.connection(PATIENCE)
        first._core.draining = True
        second, _ = await transport.connection(PATIENCE)
        assert second is not first
        assert [first.ended, second.ended] == [False, False]
        await transport.close()
        assert [first.ended, second.ended] == [True, True]

    asyncio.run(replaced())
