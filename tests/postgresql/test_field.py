"""Problems that users of other locks report, and what interlock does instead, on PostgreSQL."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.field.sentences import FIELD
from tests.full import FULL
from tests.postgresql.stores import KIND

# What the faces do differently, conformance runs in both of them: here the second one is for `dev.py test --full`.
globals().update(
    {name: suite for name, suite in suites(KIND, FIELD).items() if FULL or name.endswith("Sync")}
)
