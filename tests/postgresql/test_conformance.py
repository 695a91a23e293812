"""The PostgreSQL store keeps every promise of the port, and the clients on it theirs.

Each client listens for itself here, as clients in processes of their own do: what one does to another's claim passes through the server.
"""

from __future__ import annotations

import pytest

from interlock.backends.sql.postgresql.dialect import PostgresDialect
from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.servers.postgresql import fresh_schema, steady
from tests.full import second_face

_made = suites(StoreFactory(lambda: steady().url(fresh_schema())))
globals().update({name: suite for name, suite in _made.items() if name.endswith("Sync")})
globals().update(second_face(_made))


@pytest.fixture(autouse=True)
def as_in_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresDialect, "listener_key", None)
