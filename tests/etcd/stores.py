"""Stores on a cluster of three members for the shared suites."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from interlock._core.drive import drive
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.wire import messages
from interlock.store import Store
from interlock.testing.servers.etcd import steady
from tests.field.kinds import Kind


def abandon(store: Store) -> None:
    """Revoke the leases behind the client's back, as the server does with those of a dead client."""
    assert isinstance(store, EtcdStore)
    twin = store.blocking()
    assert isinstance(twin, EtcdStore)
    for session in list(store._side.sessions._current.values()):
        request = messages.of_lease(session.lease)
        drive(twin._side.transport.ask(messages.REVOKE, request, 5.0), nested=True)
        store._side.sessions.lose(session)


def _base(place: str) -> str:
    return parse_qs(urlsplit(place).query)["prefix"][0].rstrip("/")


def wipe(place: str) -> None:
    steady().ctl("del", _base(place), "--prefix")


def keys(place: str) -> int:
    """Those that would not vanish by themselves: tombstones do."""
    found = steady().ctl("get", _base(place), "--prefix", "--keys-only").split()
    return len([key for key in found if not key.startswith(f"{_base(place)}-gone/")])


def _fresh() -> str:
    return steady().url(f"{uuid4().hex}/")


KIND = Kind(_fresh, abandon=abandon, wipe=wipe, keys=keys)
