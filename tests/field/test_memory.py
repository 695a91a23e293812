"""What users of other locks suffer from, and what interlock does instead: on the memory store."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.field.kinds import MEMORY
from tests.field.sentences import FIELD

globals().update(suites(MEMORY, FIELD))
