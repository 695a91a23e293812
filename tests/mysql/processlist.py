"""Connections in the process list of the server."""

from __future__ import annotations

from contextlib import closing, suppress

import pymysql

from interlock.testing.servers.mysql import Server


def kill_all(server: Server, how: str = "connection", user: str = "root") -> int:
    killed = 0
    with closing(server.connect()) as admin, admin.cursor() as cursor:
        cursor.execute(
            f"select id from information_schema.processlist where id <> connection_id() and user = '{user}' and db = 'app'"
        )
        for (id,) in cursor.fetchall():
            with suppress(pymysql.Error):  # it has ended meanwhile
                cursor.execute(f"kill {how} {id}")
                killed += 1
    return killed


def asleep(server: Server) -> bool:
    found = server.run(
        "select 1 from information_schema.processlist where state in ('User sleep', 'User lock')"
    )
    return bool(found)
