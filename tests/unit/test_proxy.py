"""The proxy that stands between clients and servers in tests and demonstrations does what its docstrings promise."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from interlock.testing.servers.proxy import Mode, Piece, Proxy, proxies, through
from tests.environment import environment
from tests.patience import PATIENCE, until

SOON = 0.15  # seconds in which something that is lost would have come


class Echo:
    """A server that says what it hears, and remembers it."""

    def __init__(self, name: bytes = b"") -> None:
        self.heard = b""
        self.ended: list[str] = []  # how its connections ended
        self._name = name  # which it says first
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        threads = list[threading.Thread]()
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                self._ends.append(peer)
                threads.append(threading.Thread(target=self._serve, args=(peer,)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                peer.sendall(self._name)
                while data := peer.recv(65536):
                    self.heard += data
                    peer.sendall(data)
                self.ended.append("hung up")
            except OSError:
                self.ended.append("reset")

    def close(self) -> None:
        for end in (self._listening, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), PATIENCE)


def said(client: socket.socket, data: bytes) -> bytes:
    """What comes back."""
    client.sendall(data)
    return heard(client, len(data))


def heard(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


def silent(client: socket.socket) -> bool:
    """Whether nothing comes for a while, not even an end."""
    client.settimeout(SOON)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE)
    return False


def is_reset(client: socket.socket) -> bool:
    try:
        heard(client, 1)
    except ConnectionError:
        return True
    return False


def test_everything_passes_in_order(proxy: Proxy) -> None:
    data = os.urandom(3_000_000)
    with connected(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert heard(client, len(data)) == data
        sender.join()
    assert proxy.accepted == 1
    assert proxy.requests.passed == proxy.replies.passed == len(data)


def test_each_side_hears_how_the_other_ended(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert said(client, b"one") == b"one"
        client.shutdown(socket.SHUT_WR)
        assert heard(client, 1) == b""
    until(lambda: echo.ended == ["hung up"])
    client = connected(proxy)
    client.sendall(b"unread")
    until(lambda: echo.heard == b"oneunread" and proxy.replies.passed == 9)
    client.close()  # with something that it has not read
    until(lambda: echo.ended == ["hung up", "reset"])
    with connected(proxy) as client:
        said(client, b"one")
        echo.close()
        assert heard(client, 1) == b""
    until(lambda: not proxy.connections)


def test_what_is_lost_one_way_passes_the_other_way(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.replies.lose()
        client.sendall(b"heard")
        until(lambda: echo.heard == b"heard")
        until(lambda: proxy.replies.lost == 5)
        assert silent(client)
    with connected(proxy) as client:
        proxy.heal()
        assert said(client, b"again") == b"again"
        proxy.requests.lose()
        client.sendall(b"never")
        until(lambda: proxy.requests.lost == 5)
        assert echo.heard == b"heardagain"


def test_healing_resets_what_lost_bytes_and_nothing_else(proxy: Proxy) -> None:
    with connected(proxy) as torn, connected(proxy) as idle:
        said(torn, b"x")
        said(idle, b"x")
        proxy.set("hole")
        torn.sendall(b"lost")
        until(lambda: proxy.requests.lost == 4)
        proxy.heal()
        assert is_reset(torn)
        assert said(idle, b"again") == b"again"


def test_in_a_hole_nobody_hears_that_the_other_has_hung_up(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.set("hole")
    with connected(proxy) as late:
        late.sendall(b"lost")
        assert silent(late)
        assert echo.ended == []
        proxy.heal()
        assert is_reset(late)
    until(lambda: echo.ended == ["reset"])


def test_half_open_connections_look_open_to_the_client_only(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.set("half_open")
        until(lambda: echo.ended == ["reset"])
        client.sendall(b"lost")
        assert silent(client)
        proxy.set("pass")
        assert is_reset(client)
    with connected(proxy) as client:
        assert said(client, b"y") == b"y"


def test_a_stalled_way_loses_nothing_and_stops_its_sender(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.requests.stall()
        client.settimeout(SOON)
        sent = 0
        with suppress(TimeoutError):
            while sent < 100_000_000:
                sent += client.send(b"z" * 65536)
        client.settimeout(PATIENCE)
        assert sent < 100_000_000
        assert echo.heard == b"x"
        reader = threading.Thread(target=heard, args=(client, sent))
        reader.start()
        proxy.requests.flow()
        reader.join(PATIENCE)
        until(lambda: echo.heard == b"x" + b"z" * sent)


def test_what_is_late_keeps_its_order(proxy: Proxy) -> None:
    proxy.requests.delay(0.05, 0.1)
    words = [b"%04d" % number for number in range(20)]
    with connected(proxy) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for word in words:
            client.sendall(word)
            time.sleep(0.001)  # so that they are pieces
        assert heard(client, 80) == b"".join(words)
        assert time.monotonic() - began >= 0.05


def test_a_distant_server_answers_after_a_round_trip_and_connecting_takes_another(echo: Echo) -> None:
    with Proxy(echo.port, round_trip=0.2) as proxy, connected(proxy) as client:
        began = time.monotonic()
        assert said(client, b"first") == b"first"
        assert time.monotonic() - began >= 0.4
        began = time.monotonic()
        assert said(client, b"second") == b"second"
        assert time.monotonic() - began >= 0.2
        proxy.round_trip = 0.0
        assert said(client, b"near") == b"near"


def test_a_distant_server_that_speaks_first_is_heard_after_two_round_trips() -> None:
    server = Echo(b"hello")
    with Proxy(server.port, round_trip=0.1) as proxy:
        began = time.monotonic()
        with connected(proxy) as client:
            assert heard(client, 5) == b"hello"
        assert time.monotonic() - began >= 0.2
    server.close()


def test_kept_requests_arrive_when_they_are_delivered_though_their_sender_has_gone(
    echo: Echo, proxy: Proxy
) -> None:
    with connected(proxy) as other:
        with connected(proxy) as client:
            said(client, b"1")
            proxy.requests.keep()
            client.sendall(b"23")
            until(lambda: proxy.requests.kept == [b"23"])
            client.sendall(b"4")  # it cannot overtake
            until(lambda: proxy.requests.kept == [b"23", b"4"])
            assert said(other, b"a") == b"a"
        assert said(other, b"b") == b"b"
        assert echo.ended == []
        proxy.requests.deliver()
        until(lambda: echo.heard == b"1ab234")
        assert proxy.requests.kept == []
        assert echo.ended == []
        assert said(other, b"c") == b"c"


def test_the_second_half_of_a_message_can_be_kept(echo: Echo, proxy: Proxy) -> None:
    proxy.requests.keep(after_bytes=3)
    with connected(proxy) as client:
        client.sendall(b"abcdef")
        assert heard(client, 3) == b"abc"
        assert proxy.requests.kept == [b"def"]
        proxy.requests.deliver()
        assert heard(client, 3) == b"def"
        assert said(client, b"g") == b"g"


@pytest.mark.parametrize(
    ("options", "arrived"), [({}, b""), ({"after_pieces": 1}, b"one"), ({"after_bytes": 5}, b"onetw")]
)
def test_a_connection_is_cut_after_so_much(
    proxy: Proxy, options: dict[str, int], arrived: bytes, echo: Echo
) -> None:
    with connected(proxy) as client:
        said(client, b"zero")
        proxy.requests.cut(**options)
        with pytest.raises(ConnectionError):
            for word in (b"one", b"two", b"three"):
                said(client, word)
    until(lambda: echo.ended == ["reset"])
    assert echo.heard == b"zero" + arrived
    with connected(proxy) as client:
        assert said(client, b"next") == b"next"


def test_so_many_replies_end_their_connections(echo: Echo, proxy: Proxy) -> None:
    proxy.replies.cut(2)
    for _ in range(2):
        with connected(proxy) as client:
            client.sendall(b"x")
            assert is_reset(client)
    with connected(proxy) as client:
        assert said(client, b"y") == b"y"
    assert echo.heard == b"xxy"


def test_open_connections_are_reset_or_hung_up_and_new_ones_pass(echo: Echo, proxy: Proxy) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.reset()
        assert is_reset(client)
    with connected(proxy) as client:
        said(client, b"x")
        proxy.hang_up()
        assert heard(client, 1) == b""
    until(lambda: sorted(echo.ended) == ["hung up", "reset"])
    with connected(proxy) as client:
        assert said(client, b"x") == b"x"


def test_while_it_cuts_new_connections_are_reset_too(proxy: Proxy) -> None:
    proxy.set("cut")
    with pytest.raises(ConnectionError), connected(proxy) as client:
        heard(client, 1)
    proxy.set("pass")
    with connected(proxy) as client:
        assert said(client, b"x") == b"x"


def test_where_nobody_listens_connecting_is_refused_and_what_is_open_stays(proxy: Proxy) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
        assert said(client, b"y") == b"y"
    proxy.listen()
    with connected(proxy) as client:
        assert said(client, b"x") == b"x"


def test_a_server_that_cannot_be_reached_resets_unless_its_replies_are_lost(proxy: Proxy, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionError), connected(proxy) as client:
        heard(client, 1)
    proxy.replies.lose()
    with connected(proxy) as client:
        assert silent(client)


def test_new_connections_go_to_the_targets_in_turn() -> None:
    servers = [Echo(name) for name in (b"a", b"b", b"c")]
    with Proxy(*(server.port for server in servers[:2])) as proxy:

        def name() -> bytes:
            with connected(proxy) as client:
                return heard(client, 1)

        assert [name() for _ in range(3)] == [b"a", b"b", b"a"]
        proxy.aim(servers[2].port)
        assert name() == b"c"
    for server in servers:
        server.close()


def test_an_intercept_sees_everything_and_may_change_lose_or_hold_it(echo: Echo) -> None:
    seen, go = list[tuple[bool, bytes]](), threading.Event()

    def intercept(piece: Piece) -> object:
        seen.append((piece.is_request, piece.data))
        if piece.data == b"wait" and piece.is_request:
            piece.pass_on(b"now,")
            return asyncio.to_thread(lambda: go.wait(PATIENCE) and b"waited")
        return {b"change": b"changed", b"lose": None}.get(piece.data, piece.data)

    with Proxy(echo.port, intercept=intercept) as proxy:  # type: ignore[arg-type]
        with connected(proxy) as client, connected(proxy) as other:
            client.sendall(b"change")
            assert heard(client, 7) == b"changed"
            client.sendall(b"lose")
            until(lambda: (True, b"lose") in seen)
            client.sendall(b"wait")
            until(lambda: (True, b"wait") in seen)
            assert said(other, b"x") == b"x"
            assert heard(client, 4) == b"now,"
            assert silent(client)
            go.set()
            assert heard(client, 6) == b"waited"
        until(lambda: seen.count((True, b"")) == 2)
    assert (False, b"changed") in seen
    assert (False, b"lose") not in seen


def test_an_intercept_that_fails_resets_the_connection_and_is_told_at_the_end(echo: Echo) -> None:
    def intercept(piece: Piece) -> bytes:
        raise ValueError(piece.data)

    proxy = Proxy(echo.port, intercept=intercept)
    with connected(proxy) as client:
        client.sendall(b"x")
        assert is_reset(client)
    with pytest.raises(ValueError, match="x"):
        proxy.close()
    proxy.close()


def test_the_url_of_a_server_becomes_that_of_its_proxy() -> None:
    with proxies([7001, 70]) as (one, two):
        url = through([one, two], "redlock://127.0.0.1:7001,127.0.0.1:70/0?prefix=7001:")
        assert url == f"redlock://127.0.0.1:{one.port},127.0.0.1:{two.port}/0?prefix=7001:"


LEFT_BEHIND = """
import os, socket, sys, threading
from interlock.testing.servers.proxy import Proxy

def counted():
    return len(os.listdir("/proc/self/fd")), threading.active_count()

with socket.create_server(("127.0.0.1", 0)) as server:
    before = counted()
    for mode in ("pass", "hole", "half_open", "cut"):
        with Proxy(server.getsockname()[1]) as proxy, Proxy(server.getsockname()[1], round_trip=60) as far:
            clients = [socket.create_connection(("127.0.0.1", one.port)) for one in (proxy, far) * 3]
            for client in clients:
                client.sendall(b"x" * 100000)
            server.accept()[0].close()
            proxy.set(mode)
        for client in clients:
            client.close()
        server.settimeout(0)
        try:
            while True:
                server.accept()[0].close()
        except BlockingIOError:
            server.settimeout(None)
    assert counted() == before, (counted(), before)
assert not {"pytest", "redis", "hpack", "psycopg"} & set(sys.modules)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="it counts descriptors")
def test_nothing_is_left_behind_and_no_library_of_a_client_is_needed() -> None:
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", LEFT_BEHIND]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("mode", ["pass", "mute", "deaf", "hole", "half_open", "late", "cut"])
def test_every_mode_ends_with_a_proxy_that_passes(proxy: Proxy, mode: Mode) -> None:
    with connected(proxy) as client:
        said(client, b"x")
        proxy.set(mode)
        with suppress(OSError):
            client.sendall(b"y")
        until(lambda: mode in ("pass", "late", "cut") or proxy.requests.lost or proxy.replies.lost)
    proxy.heal()
    with connected(proxy) as client:
        assert said(client, b"z") == b"z"
