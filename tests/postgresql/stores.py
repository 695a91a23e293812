"""The store on PostgreSQL for the shared suites."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from interlock.testing.servers.postgresql import fresh_schema, steady
from tests.field.kinds import Kind


def _schema(place: str) -> str:
    return parse_qs(urlsplit(place).query)["schema"][0]


def wipe(place: str) -> None:
    """As an operator who empties the tables, or restores them from nothing."""
    schema = _schema(place)
    steady().sql(
        f"truncate {schema}.claim, {schema}.register, {schema}.bell; update {schema}.slot set last = 0"
    )


def rows(place: str) -> int:
    schema = _schema(place)
    ((claims, registers, bells),) = steady().sql(
        f"select (select count(*) from {schema}.claim), (select count(*) from {schema}.register), (select count(*) from {schema}.bell)"
    )
    return int(claims + registers + bells)


KIND = Kind(lambda: steady().url(fresh_schema()), wipe=wipe, keys=rows)
