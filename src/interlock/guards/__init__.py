"""Guards: resources that check the fencing token of a lease, and refuse a holder that comes too late.

    from interlock import guards

    with client.lock("account:1") as lease, session.begin():
        guards.sql.guard(session, lease)    # first, before anything is read: raises StaleToken if too late
        ...

| module | what it guards |
|---|---|
| `sql` | your own transaction in PostgreSQL, MySQL, MariaDB or SQLite: DB-API, SQLAlchemy, Django |
| `redis` | commands and Lua scripts on a Redis server or Cluster |
| `etcd` | writes to etcd, in one transaction |
| `zookeeper` | writes to ZooKeeper, in one multi |
| `file` | a file that is replaced as a whole |
| `http` | requests to a web application, by a middleware |

Each module is imported when it is first asked for, and none of them imports the library whose objects it
takes. `client.guard` is for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import interlock.guards.etcd as etcd
    import interlock.guards.file as file
    import interlock.guards.http as http
    import interlock.guards.redis as redis
    import interlock.guards.sql as sql
    import interlock.guards.zookeeper as zookeeper

__all__ = ["etcd", "file", "http", "redis", "sql", "zookeeper"]

if not TYPE_CHECKING:  # a type checker would accept every misspelt name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in __all__:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
