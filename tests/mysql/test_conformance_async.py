"""The store on MariaDB keeps every promise of the port, and the clients on it theirs: the faces for tasks."""

from __future__ import annotations

from tests.full import second_face
from tests.mysql.test_conformance import SUITES

globals().update(second_face(SUITES))
