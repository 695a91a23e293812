"""The etcd store keeps every promise of the port on a cluster of three members, and the clients on it theirs; async."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.etcd.stores import STORES
from tests.full import second_face

globals().update(second_face(suites(STORES)))
