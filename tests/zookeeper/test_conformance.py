"""Stores on a ZooKeeper ensemble of three pass the conformance suite, and so do clients over them."""

from __future__ import annotations

from interlock.testing.conformance import StoreFactory, suites
from tests.zookeeper.ensemble import steady
from tests.zookeeper.stores import abandon

globals().update(suites(StoreFactory(lambda: steady().fresh(), abandon=abandon)))
