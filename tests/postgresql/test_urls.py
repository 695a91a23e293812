"""The options of a URL reach libpq as libpq itself would read them."""

from __future__ import annotations

from typing import Any

import psycopg.conninfo
import pytest

import interlock
from interlock import urls
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.testing.servers.postgresql import Server, fresh_schema

BASE = "postgresql://host/app"


@pytest.mark.parametrize("ours", ["", "&schema=locks", "&connect_timeout=3"])
@pytest.mark.parametrize(
    "options",
    [
        "options=-c%20statement_timeout%3D7777%20-c%20lock_timeout%3D5s",
        "application_name=my%20app",
        "user=a%20b",
        "user=a+b",
        "user=a%2Bb",
        "password=%26%3D%25%23",
        "application_name=gr%C3%BC%C3%9Fe",
    ],
)
def test_an_option_of_libpq_arrives_as_it_was_written(options: str, ours: str) -> None:
    parts, _ = urls.timed(urls.split(f"{BASE}?{options}{ours}"))
    expected: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(f"{BASE}?{options}")
    found = dialect_of_url(parts).address.settings
    assert {name: found[name] for name in expected} == expected


def test_a_setting_of_the_session_may_have_blanks(server: Server) -> None:
    options = "-c%20statement_timeout%3D7777%20-c%20lock_timeout%3D5s"
    with interlock.connect(server.url(fresh_schema(), options=options)) as client, client.lock("x"):
        pass
