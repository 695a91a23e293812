"""From a URL, a pool of psycopg or an engine of SQLAlchemy to a store."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from interlock._core.runtime import Runtime
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.address import Address
from interlock.backends.sql.postgresql.dialect import CONNECTIONS, PostgresDialect
from interlock.backends.sql.postgresql.schema import CLOCK, Schema
from interlock.backends.sql.postgresql.statements import UNFLUSHED
from interlock.backends.sql.postgresql.user_pools import AsyncPsycopgPool, PsycopgPool, refuse_parents
from interlock.backends.sql.server_store import ServerStore
from interlock.backends.sql.user_connections import AsyncEngine, Engine, Lender, refuse_shared
from interlock.errors import InterlockError, InvalidURL, Unsupported
from interlock.store import CONNECT_TIMEOUT


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> ServerStore:
    """The store at `postgresql://user:password@host:port/database?schema=…`. Connects when used."""
    dialect = dialect_of_url(parts, connect_timeout)
    return Assembly(dialect, runtime).store(asynchronous=asynchronous)


def dialect_of_url(
    parts: SplitResult, connect_timeout: float = CONNECT_TIMEOUT, clock: str = CLOCK
) -> PostgresDialect:
    """Our own options are `schema`, `prefix`, `durability` and `connections`; libpq gets the others."""
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    # To libpq a + is a plus, and only %20 is a blank.
    options = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    ours = dict(options)
    schema = schema_of_url(parts, clock)
    durability = ours.get("durability", "durable")
    if durability not in UNFLUSHED:
        raise InvalidURL(f"durability={durability}: say durable (the default), strict or relaxed")
    known = ("schema", "prefix", "durability", "connections")
    others = [option for option in options if option[0] not in known]
    if unknown := [name for name, _ in others if not Address.knows(name)]:
        raise InvalidURL(
            f"postgresql://: neither interlock nor libpq knows the option {unknown[0]}; "
            f"ours are {', '.join(known)}"
        )
    rest = urlencode(others, quote_via=quote)
    # libpq ends the password at the first @, all other stores at the last.
    login, at, hosts = parts.netloc.rpartition("@")
    url = f"postgresql://{login.replace('@', '%40')}{at}{hosts}{parts.path}{'?' if rest else ''}{rest}"
    address = Address.of_url(url, schema, connect_timeout)
    return PostgresDialect(
        address, durability=durability, connections=_connections_option(ours.get("connections"))
    )


def schema_of_url(parts: SplitResult, clock: str = CLOCK) -> Schema:
    """The names of our tables, from the options `schema` and `prefix`."""
    ours = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        return Schema(ours.get("schema", "interlock"), ours.get("prefix", ""), clock)
    except InterlockError as error:
        raise InvalidURL(str(error)) from None


def _connections_option(said: str | None) -> int:
    if said is None:
        return CONNECTIONS
    if not said.isdecimal() or not 1 <= int(said) <= 1000:
        raise InvalidURL(
            f"connections={said}: say how many connections the calls of one client may use, from 1 to 1000"
        )
    return int(said)


def open_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> ServerStore:
    """The store on the database of a pool of psycopg or an engine of SQLAlchemy, with a connection of it
    for each call.
    """
    pool, settings = _pool(client, asynchronous)
    address = Address(settings, Schema(), connect_timeout)
    return Assembly(PostgresDialect(address, pool=pool), runtime).store(asynchronous=asynchronous)


def _pool(client: Any, asynchronous: bool) -> tuple[Lender, dict[str, Any]]:
    kind = type(client).__name__
    if hasattr(client, "getconn"):
        if asynchronous != kind.startswith("Async"):
            raise Unsupported(_other_face("pool of psycopg", "AsyncConnectionPool", "ConnectionPool"))
        refuse_parents(client)
        return (AsyncPsycopgPool if asynchronous else PsycopgPool)(client), {"host": _pool_name(client)}
    if asynchronous != hasattr(client, "sync_engine"):
        raise Unsupported(_other_face("engine of SQLAlchemy", "AsyncEngine", "Engine"))
    if client.dialect.driver not in ("psycopg", "psycopg_async"):
        raise Unsupported(
            f"interlock uses psycopg 3, and this engine uses {client.dialect.driver}: make it from "
            "postgresql+psycopg://, or give interlock a URL of its own"
        )
    refuse_shared(client)
    url = client.url
    named = {"host": url.host, "port": url.port, "dbname": url.database, "user": url.username}
    return (AsyncEngine if asynchronous else Engine)(client), named


def _other_face(what: str, wanted: str, for_threads: str) -> str:
    return (
        f"interlock.aio.connect takes an {wanted}, and interlock.connect a {for_threads}: each runs on its "
        f"own kind of {what}"
    )


def _pool_name(pool: Any) -> str:
    return str(getattr(pool, "name", "") or "")
