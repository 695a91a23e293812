"""Problems that users of other locks report, and what interlock does instead, on MariaDB: the faces for tasks."""

from __future__ import annotations

from tests.mysql.test_field import SUITES

globals().update({name: suite for name, suite in SUITES.items() if name.endswith("Async")})
