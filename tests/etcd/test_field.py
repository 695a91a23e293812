"""Problems that users of other locks report, and what interlock does instead, on etcd."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from interlock.testing.conformance import suites
from tests.etcd.cluster import steady
from tests.etcd.test_conformance import abandon
from tests.field.kinds import Kind
from tests.field.sentences import FIELD


def _base(place: str) -> str:
    return parse_qs(urlsplit(place).query)["prefix"][0].rstrip("/")


def wipe(place: str) -> None:
    steady().ctl("del", _base(place), "--prefix")


def keys(place: str) -> int:
    """Those that would not vanish by themselves: tombstones do."""
    found = steady().ctl("get", _base(place), "--prefix", "--keys-only").split()
    return len([key for key in found if not key.startswith(f"{_base(place)}-gone/")])


ETCD = Kind(lambda: steady().url(f"{uuid4().hex}/"), abandon=abandon, wipe=wipe, keys=keys)

globals().update(suites(ETCD, FIELD))
