"""Locks in a row of MariaDB as they are often written. They have no token."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

from interlock.lab.storm.workers.naive.lock import NaiveLock
from interlock.testing.journal import Journal

COLUMNS = "resource varchar(200) primary key, owner varchar(64), expires_at double"
TABLE = f"create table if not exists locks ({COLUMNS})"
NOW = "unix_timestamp(now(6))"


class NaiveMysql(NaiveLock):
    """Clean up, then insert: the unique key decides. Only the owner releases."""

    def __init__(self, place: list[int], ttl: float, journal: Journal) -> None:
        super().__init__(place, ttl, journal)
        self._run((TABLE, ()))

    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        import pymysql

        server: dict[str, Any] = {"host": "127.0.0.1", "port": self.place[0], "user": "root"}
        limits: dict[str, Any] = {"connect_timeout": 5, "read_timeout": 5}
        with closing(pymysql.connect(**server, database="app", autocommit=True, **limits)) as connection:
            with connection.cursor() as cursor:
                for statement, values in statements:
                    cursor.execute(statement, values)

    def _cleaned(self, resource: str) -> list[tuple[str, tuple[Any, ...]]]:
        """What is said before the insert."""
        return [(f"delete from locks where resource = %s and expires_at <= {NOW}", (resource,))]

    def ask(self, resource: str, id: str) -> int | None:
        import pymysql

        insert = (f"insert into locks values (%s, %s, {NOW} + %s)", (resource, id, self.ttl))
        with suppress(pymysql.Error):
            self._run(*self._cleaned(resource), insert)
            return 0
        return None

    def take_back(self, resource: str, id: str) -> None:
        import pymysql

        with suppress(pymysql.Error):
            self._run(("delete from locks where resource = %s and owner = %s", (resource, id)))


class RowForEver(NaiveMysql):
    """The row without an expiry: only its owner ever removes it."""

    def _cleaned(self, resource: str) -> list[tuple[str, tuple[Any, ...]]]:
        return []
