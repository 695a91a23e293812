"""The etcd store keeps every promise of the port on a cluster of three members, and the clients on it theirs."""

from __future__ import annotations

from uuid import uuid4

from interlock._core.drive import drive
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.wire import messages
from interlock.ports import Store
from interlock.testing.conformance import StoreFactory, suites
from tests.etcd.cluster import steady


def abandon(store: Store) -> None:
    """Revoke the leases behind the client's back, as the server does with those of a dead client."""
    assert isinstance(store, EtcdStore)
    twin = store.blocking()
    assert isinstance(twin, EtcdStore)
    for session in list(store._side.sessions._current.values()):
        request = messages.of_lease(session.lease)
        drive(twin._side.transport.call(messages.REVOKE, request, 5.0), nested=True)
        store._side.sessions.lose(session)


globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}/"), abandon=abandon)))
