"""Cuts a member off from the others, while clients still reach it.

Members speak to each other over proxies, one before the peer port of each. A request between members names
its sender (`X-Server-From`), so a proxy can refuse what comes from a member that is cut off, and the proxy
before that member refuses everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.testing.servers.etcd import EtcdCluster, Member
from interlock.testing.servers.proxy import Connection, Piece, Proxy

SENDER = re.compile(rb"X-Server-From: ([0-9a-f]+)", re.IGNORECASE)


class PeerWay:
    """The way to the peer port of one member."""

    def __init__(self, target: int, refused: set[int]) -> None:
        self._refused = refused  # senders, by their ids, that are cut off
        self.closed = False  # to everybody
        self._proxy = Proxy(target, intercept=self._see)
        self.port, self.close = self._proxy.port, self._proxy.close

    def _see(self, piece: Piece) -> bytes:
        if piece.is_request and piece.connection.label is None:
            found = SENDER.search(piece.data)
            piece.connection.label = int(found[1], 16) if found else 0
            self._check(piece.connection)
        return piece.data

    def _check(self, connection: Connection) -> None:
        if self.closed or connection.label in self._refused:
            connection.reset()

    def apply(self) -> None:
        """Cut what is open and may not be any more."""
        for connection in self._proxy.connections:
            self._check(connection)


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
