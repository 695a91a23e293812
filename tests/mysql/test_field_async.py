"""Problems that users of other locks report, and what interlock does instead, on MariaDB: the faces for tasks."""

from __future__ import annotations

import pytest

from tests.mysql.test_field import SUITES

pytestmark = pytest.mark.soak  # what the faces do differently, conformance runs in both of them

globals().update({name: suite for name, suite in SUITES.items() if name.endswith("Async")})
