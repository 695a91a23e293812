"""Problems that users of other locks report, and what interlock does instead, on MariaDB: the faces for threads. Tasks have a file of their own."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.field.sentences import FIELD
from tests.mysql.stores import KIND

globals().update({name: suite for name, suite in suites(KIND, FIELD).items() if not name.endswith("Async")})
