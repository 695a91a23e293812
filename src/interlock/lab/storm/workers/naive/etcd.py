"""A lock on etcd as it is often written: a lease, and a key that only one can create. It has no token."""

from __future__ import annotations

import math
from contextlib import suppress

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.algorithm.keeping import fresh_lease
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.errors import InterlockError
from interlock.lab.storm.workers.naive.lock import NaiveLease, NaiveLock
from interlock.testing.journal import Journal


class NaiveEtcd(NaiveLock):
    """One lease for each lock, and one key. A try that fails revokes its lease."""

    compares = True  # whether a release looks whose lock it frees

    def __init__(self, place: list[int], ttl: float, journal: Journal) -> None:
        super().__init__(place, math.ceil(ttl), journal)
        endpoints = tuple(Endpoint("127.0.0.1", port) for port in place)
        self._transport = BlockingTransport(Address(endpoints), Credentials("", ""))

    def _ask_etcd(self, method: bytes, request: bytes) -> bytes:
        return drive(self._transport.ask(method, request, 5.0), nested=True)

    def ask(self, resource: str, id: str) -> int | None:
        key = f"naive/{resource}".encode()
        with suppress(InterlockError, LeaseNotFound):
            lease = messages.LeaseAnswer(
                self._ask_etcd(messages.GRANT, messages.grant(int(self.ttl), fresh_lease()))
            ).lease
            enter = messages.put_op(messages.put(key, id.encode(), lease))
            request = messages.txn([messages.compare_create_revision(key, 0)], [enter])
            if messages.TxnAnswer(self._ask_etcd(messages.TXN, request)).succeeded:
                return 0
            self._ask_etcd(messages.REVOKE, messages.of_lease(lease))
        return None

    def free(self, lease: NaiveLease) -> None:
        key = f"naive/{lease.resource}".encode()
        with suppress(InterlockError):
            found = messages.RangeAnswer.of(self._ask_etcd(messages.RANGE, messages.get(key))).kvs
            was = found[0].value.decode() if found else lease.id
            if self.compares and was != lease.id:
                return
            self._ask_etcd(messages.TXN, messages.txn([], [messages.delete_op(key)]))
            if was != lease.id:
                self.touched(lease, was)

    def close(self) -> None:
        drive(self._transport.close(), nested=True)


class CarelessEtcd(NaiveEtcd):
    """Deletes the key at the end without looking whose it is."""

    compares = False
