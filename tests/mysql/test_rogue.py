"""Somebody else answers in the place of the server: it never gets the password in clear, and TLS that was asked for is not left out."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import interlock
from interlock.errors import InterlockError, StoreUnfit

PASSWORD = "xqzsecret"
CAPABLE = 0x00FFFFFF & ~0x0800  # everything but TLS


class Rogue:
    """Speaks the first words of a MySQL server, asks for a way to authenticate, and remembers what it is told."""

    def __init__(self, greeted: bytes, switched: bytes) -> None:
        self.heard = b""
        self._greeted, self._switched = greeted, switched

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer, suppress(OSError):
                peer.settimeout(10)
                self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        low, high = struct.pack("<H", CAPABLE & 0xFFFF), struct.pack("<H", CAPABLE >> 16)
        hello = b"\x0a8.0.30\0" + struct.pack("<I", 7) + b"saltsalt\0" + low + b"\x21" + b"\x02\0" + high
        peer.sendall(_packet(0, hello + bytes([21]) + bytes(10) + b"saltsaltsalt\0" + self._greeted + b"\0"))
        if not self._listen(peer):
            return
        more = b"\x05Password: " if self._switched == b"dialog" else b"saltsaltsaltsaltsalt\0"
        peer.sendall(_packet(2, b"\xfe" + self._switched + b"\0" + more))
        self._listen(peer)

    def _listen(self, peer: socket.socket) -> bool:
        heard = peer.recv(4096)
        self.heard += heard
        return bool(heard)


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


@contextmanager
def rogue(greeted: bytes, switched: bytes) -> Iterator[tuple[Rogue, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Rogue(greeted, switched)
        thread = threading.Thread(target=server.serve, args=(listening,), daemon=True)
        thread.start()
        yield server, listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def lock_sync(url: str) -> None:
    with interlock.connect(url) as client:
        client.lock("x").acquire(blocking=False)


def lock_async(url: str) -> None:
    async def main() -> None:
        async with interlock.aio.connect(url) as client:
            await client.lock("x").acquire(blocking=False)

    asyncio.run(main())


@pytest.mark.parametrize("lock", [lock_sync, lock_async])
@pytest.mark.parametrize(
    ("greeted", "switched"),
    [
        (b"mysql_native_password", b"mysql_clear_password"),
        (b"mysql_clear_password", b"mysql_clear_password"),
        (b"mysql_native_password", b"dialog"),
    ],
)
def test_a_server_that_asks_for_the_password_in_clear_does_not_get_it(
    lock: object, greeted: bytes, switched: bytes
) -> None:
    assert callable(lock)
    with rogue(greeted, switched) as (server, port):
        with pytest.raises(StoreUnfit, match=r"password in clear.*tls=verify"):
            lock(f"mysql://user:{PASSWORD}@127.0.0.1:{port}/app")
        assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize("lock", [lock_sync, lock_async])
@pytest.mark.parametrize("tls", ["verify", "on"])
def test_a_server_without_tls_learns_nothing_from_a_client_that_asks_for_tls(lock: object, tls: str) -> None:
    """Otherwise whoever stands between them leaves it out of the server's greeting."""
    assert callable(lock)
    with rogue(b"mysql_native_password", b"mysql_clear_password") as (server, port):
        with pytest.raises(InterlockError, match="the server offers no TLS"):
            lock(f"mysql://user:{PASSWORD}@127.0.0.1:{port}/app?tls={tls}")
        assert not server.heard
