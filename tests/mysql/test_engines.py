"""Tables that somebody has altered to an engine without transactions: nothing keeps the lock of a slot."""

from __future__ import annotations

from uuid import uuid4

import pytest

import interlock
from interlock.errors import StoreUnfit
from interlock.testing.servers.mysql import Server, steady


@pytest.fixture
def server() -> Server:
    return steady()


@pytest.mark.parametrize("table", ["slot", "claim", "register"])
def test_such_a_table_is_refused(server: Server, table: str) -> None:
    prefix = f"e{uuid4().hex[:12]}_"
    url = server.url(prefix=prefix)
    with interlock.connect(url) as client, client.lock("x"):
        pass
    server.run(f"alter table app.{prefix}{table} engine = Aria")
    with interlock.connect(url) as client:
        with pytest.raises(StoreUnfit, match=rf"{prefix}{table} has the engine Aria"):
            client.lock("x").acquire(blocking=False)
        with pytest.raises(StoreUnfit, match="engine = InnoDB"):
            client.register("x").update(lambda _: 1)
        server.run(f"alter table app.{prefix}{table} engine = InnoDB")
        with client.lock("x"):
            pass
