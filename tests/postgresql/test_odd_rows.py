"""Another role may write to the tables: that raises no error that is not ours."""

from __future__ import annotations

import psycopg
import pytest

from interlock.testing.servers.postgresql import Server, fresh_schema
from tests.attacks.servers.odd_rows import Change
from tests.attacks.servers.odd_rows import OddRows as Rows


@pytest.fixture
def schema() -> str:
    return fresh_schema()


@pytest.fixture
def url(server: Server, schema: str) -> str:
    return server.url(schema)


@pytest.fixture
def change(server: Server, schema: str) -> Change:
    def run(table: str, statement: str) -> None:
        try:
            server.sql(statement.format(f'"{schema}".{table}'))
        except psycopg.Error:
            pass  # the type of the column refuses it

    return run


class TestOddRows(Rows):
    infinite = (*Rows.infinite, "'NaN'", "'Infinity'")
