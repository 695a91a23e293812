"""The store on MariaDB for the shared suites."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from interlock.testing.servers.mysql import steady
from tests.field.kinds import Kind


def _prefix(place: str) -> str:
    return parse_qs(urlsplit(place).query)["prefix"][0]


def wipe(place: str) -> None:
    """As an operator who empties the tables, or restores them from nothing."""
    prefix = _prefix(place)
    tables = ("claim", "pending", "register", "bell", "mail")
    steady().run(
        "use app", *[f"delete from {prefix}{table}" for table in tables], f"update {prefix}slot set last = 0"
    )


def rows(place: str) -> int:
    prefix = _prefix(place)
    counts = [
        f"(select count(*) from app.{prefix}{table})" for table in ("claim", "pending", "register", "bell")
    ]
    ((found,),) = steady().run(f"select {' + '.join(counts)}")
    return int(found)


KIND = Kind(lambda: steady().fresh_url(), wipe=wipe, keys=rows)
