"""Problems that users of other locks report, and what interlock does instead, on etcd; sync."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.etcd.stores import KIND
from tests.field.sentences import FIELD

globals().update({name: suite for name, suite in suites(KIND, FIELD).items() if not name.endswith("Async")})
