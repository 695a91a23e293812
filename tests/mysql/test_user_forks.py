"""A client made from an engine of the user, in a forked child."""

from __future__ import annotations

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.testing.servers.mysql import Server
from tests.sql import forked

pytestmark = [
    pytest.mark.skipif(not forked.FORKS, reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]
NUMBER = "select connection_id()"


def test_an_engine_gives_the_child_connections_of_its_own(server: Server) -> None:
    engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{server.port}/app")
    forked.check_engine(engine, NUMBER)
    engine.dispose()


def test_an_async_engine_gives_the_child_connections_of_its_own(server: Server) -> None:
    address = f"mysql+aiomysql://root@127.0.0.1:{server.port}/app"
    forked.check_async_engine(lambda: create_async_engine(address), NUMBER)
