"""The conformance suite on a ZooKeeper ensemble of three, async; the two faces are two files, so that they run side by side."""

from __future__ import annotations

from interlock.testing.conformance import StoreFactory, suites
from tests.zookeeper.ensemble import steady
from tests.zookeeper.stores import abandon

_made = suites(StoreFactory(lambda: steady().fresh(), abandon=abandon))
globals().update({name: suite for name, suite in _made.items() if name.endswith("Async")})
