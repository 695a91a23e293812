"""The store on MariaDB keeps every promise of the port, and the clients on it theirs: the faces for tasks."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.full import second_face
from tests.mysql.stores import STORES

globals().update(second_face(suites(STORES)))
