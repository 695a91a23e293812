"""Where a PostgreSQL server is, how to log in, and which tables are ours there.

libpq makes the connections, and takes all of its options from a URL: TLS, several hosts, service files, `target_session_attrs`.
"""

from __future__ import annotations

import ipaddress
from importlib import import_module
from typing import Any

from interlock.backends.sql.postgresql.schema import Schema
from interlock.errors import InvalidURL, StoreUnfit

# Options of libpq that do not belong to a session of ours.
NOT_OURS = ("connect_timeout", "client_encoding", "fallback_application_name")


def psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError:
        raise StoreUnfit(
            "a store on PostgreSQL needs the client library psycopg 3; install it: pip install 'interlock[postgresql]'"
        ) from None


class Address:
    """One server or several, as a URL or a connection of the user names it. Its repr shows no password."""

    def __init__(self, settings: dict[str, str], schema: Schema, connect_timeout: float) -> None:
        library = psycopg()
        self.pq = library.pq
        self.driver_error: type[Exception] = library.Error
        self.schema = schema
        self.connect_timeout = connect_timeout
        self.settings: dict[str, str] = {}
        self.place = ""
        self.learn(settings)

    @classmethod
    def of_url(cls, url: str, schema: Schema, connect_timeout: float) -> Address:
        """The address in a URL without our own options; the others are libpq's."""
        library = psycopg()
        try:
            settings = import_module("psycopg.conninfo").conninfo_to_dict(url)
        except library.ProgrammingError as error:
            raise InvalidURL(f"postgresql://: {' '.join(str(error).split())}") from None
        return cls(settings, schema, connect_timeout)

    def __repr__(self) -> str:
        return f"<Address {self.place}>"

    def learn(self, settings: dict[str, Any]) -> None:
        """Take over the settings of a connection, such as one that a user's pool has made."""
        self.settings = {
            k: str(v) for k, v in settings.items() if v is not None and v != "" and k not in NOT_OURS
        }
        self.place = place(self.settings)

    def learn_from(self, pgconn: Any) -> None:
        """The same from an open connection of libpq: with what a user's engine or pool has filled in."""
        self.learn(
            {
                o.keyword.decode(): o.val.decode()
                for o in pgconn.info
                if o.val is not None and o.keyword != b"replication"
            }
        )

    def unresolved(self) -> list[str]:
        """The hosts that are names: neither addresses nor folders of sockets, and not resolved by the user."""
        if self.settings.get("hostaddr"):
            return []
        return [host for host in self.settings.get("host", "").split(",") if host and not _numeric(host)]

    def conninfo(self, known: dict[str, list[str]]) -> bytes:
        """What libpq is given; `known` has the addresses of the hosts in `unresolved`."""
        settings = dict(self.settings)
        if known:
            settings |= _spread(settings, known)
        settings.setdefault("application_name", "interlock")
        settings["client_encoding"] = "UTF8"
        made: str = import_module("psycopg.conninfo").make_conninfo(**settings)
        return made.encode()


def _spread(settings: dict[str, str], known: dict[str, list[str]]) -> dict[str, str]:
    """Hosts, addresses and ports such that libpq tries every address of every host."""
    hosts = settings["host"].split(",")
    ports = settings.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    lines = [
        (host, address, port)
        for host, port in zip(hosts, ports, strict=False)
        for address in known.get(host, [host if _address(host) else ""])
    ]
    spread = {"host": ",".join(line[0] for line in lines), "hostaddr": ",".join(line[1] for line in lines)}
    return spread | ({"port": ",".join(line[2] for line in lines)} if any(ports) else {})


def _numeric(host: str) -> bool:
    return host.startswith(("/", "@")) or _address(host)


def _address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def place(settings: dict[str, str]) -> str:
    """The server for messages: hosts, port and database, without credentials."""
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    port = settings.get("port") or "5432"
    return f"postgresql://{host}:{port}/{settings.get('dbname') or settings.get('user') or ''}"
