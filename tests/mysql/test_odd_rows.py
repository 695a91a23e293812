"""Another user may write to the tables: that raises no error that is not ours."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pymysql
import pytest

from interlock.testing.servers.mysql import Server
from tests.attacks.servers.odd_rows import Change
from tests.attacks.servers.odd_rows import OddRows as Rows


@pytest.fixture
def change(server: Server, url: str) -> Change:
    prefix = parse_qs(urlsplit(url).query)["prefix"][0]

    def run(table: str, statement: str) -> None:
        with suppress(pymysql.Error):  # the type of the column refuses it
            server.run("use app", statement.format(f"{prefix}{table}"))

    return run


class TestOddRows(Rows):
    pass
