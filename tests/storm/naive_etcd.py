"""A lock on etcd as it is often written: a lease, and a key that only one can create. It has no token.

`carelessetcd` also deletes the key at the end without looking whose it is.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.algorithm.keeping import fresh_lease
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.errors import InterlockError
from tests.storm.journal import Journal
from tests.storm.naive import Naive, NaiveLease


class NaiveEtcd(Naive):
    """One lease for each lock, and one key."""

    compares = True

    def __init__(self, ports: list[int], ttl: float, journal: Journal) -> None:
        self._ttl = math.ceil(ttl)
        self._journal = journal
        endpoints = tuple(Endpoint("127.0.0.1", port) for port in ports)
        self._transport = BlockingTransport(Address(endpoints), Credentials("", ""))

    def _ask_etcd(self, method: bytes, request: bytes) -> bytes:
        return drive(self._transport.ask(method, request, 5.0), nested=True)

    def _try(self, resource: str, id: str) -> int | None:
        key = f"naive/{resource}".encode()
        with suppress(InterlockError, LeaseNotFound):
            lease = messages.LeaseAnswer(
                self._ask_etcd(messages.GRANT, messages.grant(int(self._ttl), fresh_lease()))
            ).lease
            enter = messages.put_op(messages.put(key, id.encode(), lease))
            request = messages.txn([messages.compare_create_revision(key, 0)], [enter])
            if messages.TxnAnswer(self._ask_etcd(messages.TXN, request)).succeeded:
                return 0
            self._ask_etcd(messages.REVOKE, messages.of_lease(lease))
        return None

    def _free_all(self, resource: str, id: str) -> None:
        pass  # a try that failed has revoked its lease

    def free(self, lease: NaiveLease) -> None:
        key = f"naive/{lease.resource}".encode()
        with suppress(InterlockError):
            found = messages.RangeAnswer.of(self._ask_etcd(messages.RANGE, messages.get(key))).kvs
            was = found[0].value.decode() if found else lease.id
            if self.compares and was != lease.id:
                return
            self._ask_etcd(messages.TXN, messages.txn([], [messages.delete_op(key)]))
            if was != lease.id:
                what = f"released the lock of {was}"
                self._journal.add("touch", "fail", attempt=lease.id, resource=lease.resource, error=what)

    def close(self) -> None:
        drive(self._transport.close(), nested=True)


class CarelessEtcd(NaiveEtcd):
    compares = False


NAIVE_ETCD: dict[str, Any] = {kind.__name__.lower(): kind for kind in (NaiveEtcd, CarelessEtcd)}
