"""Every role of PostgreSQL may NOTIFY: that makes no holder."""

from __future__ import annotations

import pytest

from interlock.testing.servers.postgresql import Server, fresh_schema
from tests.attacks.servers.forged import Forge, Forged
from tests.patience import until


@pytest.fixture
def schema() -> str:
    return fresh_schema()


@pytest.fixture
def url(server: Server, schema: str) -> str:
    return server.url(schema)


@pytest.fixture
def forge(server: Server, schema: str) -> Forge:
    def send(junk: bytes) -> None:
        waiting = f'select bell, id, token from "{schema}".claim where state = 0 and bell <> %s'
        ((bell, id, token),) = until(lambda: server.sql(waiting, ""))  # it listens
        server.sql("select pg_notify(%s, %s)", bell, f"c{id} {token}{junk.decode()}")

    return send


class TestForged(Forged):
    pass
