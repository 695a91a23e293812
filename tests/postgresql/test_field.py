"""Problems that users of other locks report, and what interlock does instead, on PostgreSQL."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from interlock.testing.conformance import suites
from interlock.testing.servers.postgresql import fresh_schema, steady
from tests.field.kinds import Kind
from tests.field.sentences import FIELD
from tests.full import FULL


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


POSTGRESQL = Kind(lambda: steady().url(fresh_schema()), wipe=wipe, keys=rows)

# What the faces do differently, conformance runs in both of them: here the second one is for `dev.py test --full`.
globals().update(
    {name: suite for name, suite in suites(POSTGRESQL, FIELD).items() if FULL or name.endswith("Sync")}
)
