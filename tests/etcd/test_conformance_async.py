"""The etcd store keeps every promise of the port on a cluster of three members, and the clients on it theirs; async."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.etcd.stores import STORES

globals().update({name: suite for name, suite in suites(STORES).items() if name.endswith("Async")})
