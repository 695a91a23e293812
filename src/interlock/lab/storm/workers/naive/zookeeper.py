"""Locks on ZooKeeper as they are often written: an ephemeral node, or a session that is believed in by its
pings.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from interlock.lab.storm.workers.naive.lock import NaiveLock
from interlock.lab.storm.workers.synchronizers import Interlock
from interlock.testing.journal import Journal


class NaiveZooKeeper(NaiveLock):
    """An ephemeral node by its own name: whoever can create it holds it. It has no token."""

    def __init__(self, place: str, ttl: float, journal: Journal) -> None:
        super().__init__(place, ttl, journal)
        self._start()

    def _start(self) -> None:
        from kazoo.client import KazooClient

        self._server: Any = KazooClient(self.place, timeout=self.ttl)
        self._server.start()

    def ask(self, resource: str, id: str) -> int | None:
        from kazoo.exceptions import KazooException

        with suppress(KazooException):
            self._server.create(f"/{resource}", id.encode(), ephemeral=True)
            return 0
        return None

    def take_back(self, resource: str, id: str) -> None:
        from kazoo.exceptions import KazooException

        with suppress(KazooException):
            value, stat = self._server.get(f"/{resource}")
            if value.decode() == id:
                self._server.delete(f"/{resource}", version=stat.version)

    def close(self) -> None:
        self._server.stop()
        self._server.close()


class Pinged(Interlock):
    """interlock with its rule taken away: a session lives for a timeout from the last answered ping, and so
    do its claims.
    """

    def __init__(self, place: str, ttl: float, journal: Journal) -> None:
        _believe_in_pings()
        super().__init__(place, ttl, journal)


class _Belief:
    answered = 0.0


def _believe_in_pings() -> None:
    from interlock.backends.zookeeper import session_client as seam
    from interlock.backends.zookeeper.deadline_rule import ConfirmedWrites
    from interlock.backends.zookeeper.store import ZooKeeperStore

    made = seam.SessionClient._new_client

    def new_client(self: seam.SessionClient) -> Any:
        client = made(self)
        connection = client._connection
        send, sent = connection._send_ping, [0.0]
        clear = connection.ping_outstanding.clear

        def send_ping(timeout: float) -> None:
            sent[0] = self.now()
            send(timeout)

        def answered() -> None:
            _Belief.answered = sent[0]
            clear()

        connection._send_ping, connection.ping_outstanding.clear = send_ping, answered
        return client

    async def standing(self: ZooKeeperStore, *_: Any) -> set[str]:
        return {entry.path for entry in self._ledger.claims.values()}

    def ends(self: ConfirmedWrites) -> float:
        return max(self.counts_from, _Belief.answered) + self.timeout

    loose: Any = (seam.SessionClient, ZooKeeperStore, ConfirmedWrites)
    loose[0]._new_client, loose[1]._standing_paths, loose[2].ends = new_client, standing, property(ends)
