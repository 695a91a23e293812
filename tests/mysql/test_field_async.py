"""Problems that users of other locks report, and what interlock does instead, on MariaDB: the faces for tasks."""

from __future__ import annotations

import pytest

from interlock.testing.conformance import suites
from tests.field.sentences import FIELD
from tests.mysql.stores import KIND

pytestmark = pytest.mark.soak  # what the faces do differently, conformance runs in both of them

globals().update({name: suite for name, suite in suites(KIND, FIELD).items() if name.endswith("Async")})
