"""The doorbell: a datagram socket whose address stands in the waiter's row. The process that admits the
waiter rings it.

A ring only wakes the waiter; the next transaction decides. So a ring may get lost (a full buffer, another
network namespace, a crash between commit and ring): the notifier also polls.

Every user of the machine can see the socket and send to it. So the address in the row ends in a key, with
which each ring begins, and only those who may read the lock file know it. A ring without the key wakes
nobody.

A row may come from another user who shares the file. So nothing is sent to an address that is not of the form
that `Doorbell.hang` makes: a datagram from root can be an order to another program.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from interlock._support import native, standard_streams

if TYPE_CHECKING:
    import socket

MAX_DATAGRAM_BYTES = 32 * 1024  # bytes of a datagram
DATAGRAMS_PER_READ = 16  # datagrams received at once
UNKNOWN = ""  # the topic of a ring without the key: nobody waits for it

ABSTRACT = re.compile(r"@(interlock/[0-9]{1,10}/[0-9a-f]{16})#([0-9a-f]{32})", re.ASCII)
IN_FOLDER = re.compile(r"(/[^\0\n]*/interlock-[a-z0-9_]{8}/bell)#([0-9a-f]{32})", re.ASCII)


def available() -> bool:
    return os.name == "posix"


def _new_socket() -> socket.socket:
    import socket  # here, not above: most programs never wait, so they need no socket

    standard_streams.occupy()
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


class Doorbell:
    """One bell of one process. `address` is '' until it is hung, and where there is none to hang."""

    def __init__(self) -> None:
        self.address = ""  # with the key
        self.key = b""  # what each ring of ours begins with
        self._socket: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._directory = ""
        self._mutex = native.mutex()  # a finalizer may ring from within

    def hang(self) -> str:
        """Make the socket if there is none yet; its address."""
        if self._socket is None and available():
            bell = _new_socket()
            name, key = f"interlock/{os.getpid()}/{os.urandom(8).hex()}", os.urandom(16).hex()
            if sys.platform == "linux":  # an abstract name: a killed process leaves nothing on disk
                bell.bind("\0" + name)
                address = f"@{name}#{key}"
            else:
                from tempfile import mkdtemp

                self._directory = mkdtemp(prefix="interlock-")  # mode 0700
                path = os.path.join(self._directory, "bell")
                bell.bind(path)
                address = f"{path}#{key}"
            bell.setblocking(False)  # for `take`
            self.key = key.encode()
            self._socket, self.address = bell, address
        return self.address

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def ring(self, address: str, topics: list[str]) -> None:
        """Name the topics to the bell at `address`; a bell that is gone or full is ignored."""
        where, key = _parsed(address)
        if not where or (where[0] == "/" and not _is_bell(where)):
            return
        try:
            sender = self._sender or self._sending()
            if len(topics) == 1:  # as a rule
                sender.sendto(key + topics[0].encode(), where)
                return
            for datagram in _datagrams(topics):
                sender.sendto(key + datagram, where)
        except OSError:
            pass  # also if no descriptor is free: the waiter polls

    def _sending(self) -> socket.socket:
        with self._mutex:
            if self._sender is None:
                sender = _new_socket()
                sender.setblocking(False)  # a stopped process must not block those that ring it
                self._sender = sender
            return self._sender

    def receive(self, timeout: float, most: int = DATAGRAMS_PER_READ) -> list[str]:
        """Return the topics of the rings that have arrived, `most` at once; wait up to `timeout` seconds
        for the first.
        """
        bell = self._socket
        assert bell is not None, "hung before anybody listens"
        bell.settimeout(max(0.0001, timeout))
        try:
            received = self.topics(bell.recv(MAX_DATAGRAM_BYTES * 2))
        except (TimeoutError, BlockingIOError):
            return []
        return received + self.take(most - 1)

    def take(self, most: int) -> list[str]:
        """As `receive`, without waiting.

        By the descriptor: another thread may be in `receive`, and the timeout is the socket's.
        """
        received: list[str] = []
        try:
            for _ in range(most):  # bounded: a stranger may ring without end
                received += self.topics(os.read(self.fileno(), MAX_DATAGRAM_BYTES * 2))
        except BlockingIOError:
            pass
        return received

    def topics(self, datagram: bytes) -> list[str]:
        """The topics that a ring names; `UNKNOWN` if it lacks the key."""
        key = self.key
        if not datagram.startswith(key):
            return [UNKNOWN]
        return datagram[len(key) :].decode("utf-8", "replace").split("\n")

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
                os.unlink(os.path.join(self._directory, "bell"))
                os.rmdir(self._directory)

    def __del__(self) -> None:
        self._close()  # and no more: at the end of the interpreter, modules are gone already

    def after_fork(self) -> None:
        """In a forked child: the bell is the parent's; only our copies of its sockets are closed."""
        self._directory = ""
        self.take_down()


@lru_cache(maxsize=1024)
def _parsed(address: object) -> tuple[str, bytes]:
    """The socket of an address, and the key of its datagrams; an empty path if the address is not ours."""
    abstract = sys.platform == "linux"
    found = (ABSTRACT if abstract else IN_FOLDER).fullmatch(address) if isinstance(address, str) else None
    if found is None:
        return "", b""
    return ("\0" if abstract else "") + found[1], found[2].encode()


def _is_bell(path: str) -> bool:
    """Whether a path leads to a socket and not, by a link, to another program's."""
    try:
        folder, bell = os.lstat(os.path.dirname(path)), os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(folder.st_mode) and stat.S_ISSOCK(bell.st_mode) and folder.st_uid == bell.st_uid


def _datagrams(topics: list[str]) -> Iterator[bytes]:
    """The topics, one a line, in as few datagrams as they fit into: a receiver's buffer holds only ten."""
    batch: list[bytes] = []
    size = 0
    for topic in topics:
        line = topic.encode()
        if batch and size + len(line) > MAX_DATAGRAM_BYTES:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    yield b"\n".join(batch)
