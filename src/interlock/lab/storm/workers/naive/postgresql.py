"""A lock in a row of PostgreSQL as it is often written: owner, expiry, and a token that counts in the row."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from interlock.lab.storm.workers.naive.lock import NaiveLock
from interlock.testing.journal import Journal

TABLE = "create table naive (resource text primary key, owner text, token bigint, lapses_at float8)"
NOW = "extract(epoch from clock_timestamp())"
TAKE = f"""
insert into naive as n (resource, owner, token, lapses_at) values (%(r)s, %(i)s, 1, {NOW} + %(t)s)
on conflict (resource)
do update set owner = excluded.owner, token = n.token + 1, lapses_at = excluded.lapses_at
where n.lapses_at <= {NOW} returning token
"""
FREE = "update naive set lapses_at = 0 where resource = %(r)s and owner = %(i)s"


class NaiveRow(NaiveLock):
    """The classic recipe: the row stays, and whoever finds it lapsed writes itself into it."""

    def __init__(self, place: list[int], ttl: float, journal: Journal) -> None:
        super().__init__(place, ttl, journal)
        self._run(TABLE)

    def _run(self, statement: str, **values: Any) -> Any:
        import psycopg

        server = f"postgresql://postgres@127.0.0.1:{self.place[0]}/postgres"
        said: Any = statement
        with (
            suppress(psycopg.Error),
            psycopg.connect(server, autocommit=True, connect_timeout=2) as connection,
        ):
            cursor = connection.execute(said, values or None)
            return cursor.fetchone() if cursor.description else None

    def ask(self, resource: str, id: str) -> int | None:
        found = self._run(TAKE, r=resource, i=id, t=self.ttl)
        return None if found is None else int(found[0])

    def take_back(self, resource: str, id: str) -> None:
        self._run(FREE, r=resource, i=id)
