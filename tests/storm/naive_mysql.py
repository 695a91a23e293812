"""A lock in a row of MariaDB as it is often written: a unique key, an owner, an expiry. It has no token."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import pymysql

from tests.storm.journal import Journal
from tests.storm.naive import Naive, NaiveLease

TABLE = "create table if not exists locks (resource varchar(200) primary key, owner varchar(64), expires_at double)"
NOW = "unix_timestamp(now(6))"


class NaiveMysql(Naive):
    """Clean up, then insert: the unique key decides. Only the owner releases."""

    def __init__(self, ports: list[int], ttl: float, journal: Journal) -> None:
        self._ttl = ttl
        self._journal = journal
        self._port = ports[0]
        self._run((TABLE, ()))

    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> int:
        changed = 0
        place: dict[str, Any] = {"host": "127.0.0.1", "port": self._port, "user": "root", "database": "app"}
        with closing(
            pymysql.connect(**place, autocommit=True, connect_timeout=5, read_timeout=5)
        ) as connection:
            with connection.cursor() as cursor:
                for statement, values in statements:
                    changed = cursor.execute(statement, values)
        return changed

    def _try(self, resource: str, id: str) -> int | None:
        with suppress(pymysql.Error):
            self._run(
                (f"delete from locks where resource = %s and expires_at <= {NOW}", (resource,)),
                (f"insert into locks values (%s, %s, {NOW} + %s)", (resource, id, self._ttl)),
            )
            return 0
        return None

    def _free_all(self, resource: str, id: str) -> None:
        with suppress(pymysql.Error):
            self._run(("delete from locks where resource = %s and owner = %s", (resource, id)))

    def free(self, lease: NaiveLease) -> None:
        self._free_all(lease.resource, lease.id)

    def close(self) -> None:
        """Every statement has a connection of its own."""
