"""The doorbell: a datagram socket whose address stands in the waiter's row. The process that admits the waiter rings it.

A ring only wakes the waiter; the next transaction decides. So any process may ring, and a ring may get lost (a full buffer,
another network namespace, a crash between commit and ring): the notifier also polls.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from interlock import native

if TYPE_CHECKING:
    import socket

LARGEST = 32 * 1024  # bytes of a datagram
MANY = 16  # datagrams received at once


def available() -> bool:
    return os.name == "posix"


def _new_socket() -> socket.socket:
    import socket  # here, not above: most programs never wait, so they need no socket

    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


class Doorbell:
    """One bell of one process. `address` is '' until it is hung, and where there is none to hang."""

    def __init__(self) -> None:
        self.address = ""
        self._socket: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._directory = ""
        self._guard = native.guard()  # a finalizer may ring from within

    def hang(self) -> str:
        """Make the socket if there is none yet; its address."""
        if self._socket is None and available():
            bell = _new_socket()
            name = f"interlock/{os.getpid()}/{os.urandom(8).hex()}"
            if sys.platform == "linux":  # an abstract name: a killed process leaves nothing on disk
                bell.bind("\0" + name)
                address = "@" + name
            else:
                from tempfile import mkdtemp

                self._directory = mkdtemp(prefix="interlock-")  # mode 0700
                address = os.path.join(self._directory, "bell")
                bell.bind(address)
            bell.setblocking(False)  # for `take`
            self._socket, self.address = bell, address
        return self.address

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def ring(self, address: str, topics: list[str]) -> None:
        """Name the topics to the bell at `address`; a bell that is gone or full is ignored."""
        if not address:
            return
        where = b"\0" + address[1:].encode() if address[0] == "@" else address
        try:
            sender = self._sender or self._sending()
            if len(topics) == 1:  # as a rule
                sender.sendto(topics[0].encode(), where)
                return
            for datagram in _datagrams(topics):
                sender.sendto(datagram, where)
        except OSError:
            pass  # also if no descriptor is free: the waiter polls

    def _sending(self) -> socket.socket:
        with self._guard:
            if self._sender is None:
                sender = _new_socket()
                sender.setblocking(False)  # a stopped process must not block those that ring it
                self._sender = sender
            return self._sender

    def receive(self, timeout: float, most: int = MANY) -> list[str]:
        """Return the topics of the rings that have arrived, `most` at once; wait up to `timeout` seconds for the first."""
        bell = self._socket
        assert bell is not None, "hung before anybody listens"
        bell.settimeout(max(0.0001, timeout))
        try:
            received = topics(bell.recv(LARGEST * 2))
        except (TimeoutError, BlockingIOError):
            return []
        return received + self.take(most - 1)

    def take(self, most: int) -> list[str]:
        """As `receive`, without waiting. By the descriptor: another thread may be in `receive`, and the timeout is the socket's."""
        received: list[str] = []
        try:
            for _ in range(most):  # bounded: a stranger may ring without end
                received += topics(os.read(self.fileno(), LARGEST * 2))
        except BlockingIOError:
            pass
        return received

    def pause(self, timeout: float) -> None:
        """Let some time pass without receiving anything."""
        time.sleep(max(0.0, timeout))

    def take_down(self) -> None:
        self._close()
        self.__init__()  # type: ignore[misc]

    def _close(self) -> None:
        for ours in (self._socket, self._sender):
            if ours is not None:
                ours.close()
        if self._directory:
            with suppress(OSError):
                os.unlink(self.address)
                os.rmdir(self._directory)

    def __del__(self) -> None:
        self._close()  # and no more: at the end of the interpreter, modules are gone already

    def after_fork(self) -> None:
        """In a forked child: the bell is the parent's; only our copies of its sockets are closed."""
        self._directory = ""
        self.take_down()


def topics(datagram: bytes) -> list[str]:
    """The topics that a ring names."""
    return datagram.decode("utf-8", "replace").split("\n")


def _datagrams(topics: list[str]) -> Iterator[bytes]:
    """The topics, one a line, in as few datagrams as they fit into: a receiver's buffer holds only ten."""
    batch: list[bytes] = []
    size = 0
    for topic in topics:
        line = topic.encode()
        if batch and size + len(line) > LARGEST:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    yield b"\n".join(batch)
