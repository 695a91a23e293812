"""Problems that users of other locks report, and what interlock does instead, on Redis."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.field.sentences import FIELD
from tests.redis.stores import KIND

globals().update(suites(KIND, FIELD))
