"""Cuts a member off from the others, while clients still reach it.

Members speak to each other over proxies, one before the peer port of each. A request between members names its sender
(`X-Server-From`), so a proxy can refuse what comes from a member that is cut off, and the proxy before that member refuses everybody.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from interlock.testing.servers.etcd import EtcdCluster, Member

SENDER = re.compile(rb"X-Server-From: ([0-9a-f]+)", re.IGNORECASE)


class PeerWay:
    """The way to the peer port of one member."""

    def __init__(self, target: int, refused: set[int]) -> None:
        self._target = target
        self._refused = refused  # senders, by their ids, that are cut off
        self.closed = False  # to everybody
        self._open: list[tuple[int, socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(came,), daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        with suppress(OSError), came:
            first = came.recv(65536)
            found = SENDER.search(first)
            sender = int(found[1], 16) if found else 0
            if self.closed or sender in self._refused:
                return
            with socket.create_connection(("127.0.0.1", self._target)) as gone:
                self._open.append((sender, came, gone))
                gone.sendall(first)
                back = threading.Thread(target=_pump, args=(gone, came), daemon=True)
                back.start()
                _pump(came, gone)
                back.join()

    def apply(self) -> None:
        """Cut what is open and may not be any more."""
        for entry in list(self._open):
            if self.closed or entry[0] in self._refused:
                self._open.remove(entry)
                for sock in entry[1:]:
                    with suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.apply()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for sock in (source, target):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class PartedCluster(EtcdCluster):
    """Three members whose links to each other can be cut."""

    def start(self) -> None:
        self._refused: set[int] = set()
        self._ways = {member.name: PeerWay(member.peer_port, self._refused) for member in self.members}
        for member in self.members:
            member.peer_address = f"http://127.0.0.1:{self._ways[member.name].port}"
        super().start()
        self._ids = {member.name: _id(member) for member in self.members}

    def cut(self, member: Member) -> None:
        self._refused.add(self._ids[member.name])
        self._ways[member.name].closed = True
        self._apply()

    def heal(self) -> None:
        self._refused.clear()
        for way in self._ways.values():
            way.closed = False

    def _apply(self) -> None:
        for way in self._ways.values():
            way.apply()

    @contextmanager
    def alone(self, member: Member) -> Iterator[None]:
        """This member without the others, for a while."""
        self.cut(member)
        try:
            yield
        finally:
            self.heal()

    def close(self) -> None:
        super().close()
        for way in getattr(self, "_ways", {}).values():
            way.close()


def _id(member: Member) -> int:
    status = member.status()
    assert status is not None
    return status.member % (1 << 64)


@contextmanager
def parted() -> Iterator[PartedCluster]:
    cluster = PartedCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
