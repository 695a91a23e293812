"""What users of other locks suffer from, and what interlock does instead: on the SQLite store."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.field.killed import KilledAndPaused
from tests.field.kinds import SQLITE
from tests.field.sentences import FIELD

globals().update(suites(SQLITE, [*FIELD, KilledAndPaused]))
