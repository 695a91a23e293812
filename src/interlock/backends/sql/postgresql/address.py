"""Where a PostgreSQL server is, how to log in, and which tables are ours there.

libpq makes the connections, and takes all of its options from a URL: TLS, several hosts, service files,
`target_session_attrs`.
"""

from __future__ import annotations

import ipaddress
import time
from importlib import import_module
from itertools import zip_longest
from random import shuffle
from typing import Any, NamedTuple

from interlock.backends.kit.libraries import missing
from interlock.backends.sql.postgresql.schema import Schema
from interlock.errors import InvalidURL

# Options of libpq that do not belong to a session of ours.
NOT_OURS = ("connect_timeout", "client_encoding", "fallback_application_name")


def psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError:
        raise missing("PostgreSQL", "psycopg 3", "postgresql", "psycopg[binary]") from None


HUNG_SERVER_S = 10.0  # seconds for which a server that hung is tried after the others


class Server(NamedTuple):
    """One of the servers that a URL names. An empty part is left to libpq."""

    host: str
    hostaddr: str
    port: str

    @property
    def unresolved(self) -> bool:
        """Whether the host is a name: neither an address nor a folder of sockets, and not resolved by the
        user.
        """
        if self.hostaddr or not self.host or self.host.startswith(("/", "@")):
            return False
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False


class Address:
    """One server or several, as a URL or a connection of the user names it. Its repr shows no password."""

    def __init__(self, settings: dict[str, str], schema: Schema, connect_timeout: float) -> None:
        library = psycopg()
        self.pq = library.pq
        self.driver_error: type[Exception] = library.Error
        self.schema = schema
        self.connect_timeout = connect_timeout
        self.settings: dict[str, str] = {}
        self.label = ""
        self.role = b""  # a command that brings a transaction of ours into the role of the user's connections
        self._hung: dict[Server, float] = {}  # until when a server is tried last
        self.learn(settings)

    @classmethod
    def of_url(cls, url: str, schema: Schema, connect_timeout: float) -> Address:
        """The address in a URL without our own options; the others are libpq's."""
        library = psycopg()
        try:
            settings = import_module("psycopg.conninfo").conninfo_to_dict(url)
        except (library.ProgrammingError, UnicodeError):
            # The text of the library quotes the URL, and may quote the password with it.
            raise InvalidURL(
                "postgresql://: libpq cannot read this URL: each option is name=value, and in a user name, a "
                "password or a value a % is written %25"
            ) from None
        ports = settings.get("port") or ""
        if not all(port.isdecimal() and 0 < int(port) < 65536 for port in str(ports).split(",") if port):
            raise InvalidURL(
                "postgresql://: the port must be a number up to 65535, and an address of IPv6 stands in "
                "brackets: [::1]:5432"
            )
        named = settings.get("host") or settings.get("hostaddr") or ""
        if str(ports).count(",") not in (0, str(named).count(",")):
            raise InvalidURL("postgresql://: name one port for all hosts, or one for each")
        return cls(settings, schema, connect_timeout)

    @staticmethod
    def knows(option: str) -> bool:
        """Whether libpq has this option; `ssl` it takes in a URL alone."""
        return option == "ssl" or option in {
            one.keyword.decode() for one in psycopg().pq.Conninfo.get_defaults()
        }

    def __repr__(self) -> str:
        return f"<Address {self.label}>"

    def learn(self, settings: dict[str, Any]) -> None:
        """Take over the settings of a connection, such as one that a user's pool has made."""
        self.settings = {
            k: str(v) for k, v in settings.items() if v is not None and v != "" and k not in NOT_OURS
        }
        self.label = label(self.settings)

    def learn_from(self, pgconn: Any) -> None:
        """The same from an open connection of libpq: with what a user's engine or pool has filled in."""
        self.learn(
            {
                o.keyword.decode(): o.val.decode()
                for o in pgconn.info
                if o.val is not None and o.keyword != b"replication"
            }
        )

    def servers(self) -> list[Server]:
        """The servers in the order in which to try them: that of the URL, and those that hung a moment ago
        at the end.
        """
        settings = self.settings
        hosts = settings.get("host", "").split(",")
        addresses = settings.get("hostaddr", "").split(",")
        ports = settings.get("port", "").split(",")
        count = max(len(hosts), len(addresses))
        ports = ports * count if len(ports) == 1 else ports
        found = [Server(*parts) for parts in zip_longest(hosts, addresses, ports[:count], fillvalue="")]
        if settings.get("load_balance_hosts") == "random":
            shuffle(found)
        return sorted(found, key=self.hung)

    def hung(self, server: Server) -> bool:
        """Whether this server, one of several, did not answer when it was last tried, a moment ago."""
        return self._hung.get(server, 0.0) > time.monotonic()

    def note_hung(self, server: Server) -> None:
        self._hung[server] = time.monotonic() + HUNG_SERVER_S

    def conninfo(self, server: Server, address: str) -> bytes:
        """What libpq is given for one server at one numeric address; '' if it is to find the address
        itself.
        """
        named = {"host": server.host, "hostaddr": address, "port": server.port}
        settings = {name: value for name, value in (self.settings | named).items() if value}
        settings.setdefault("application_name", "interlock")
        settings["client_encoding"] = "UTF8"
        made: str = import_module("psycopg.conninfo").make_conninfo(**settings)
        return made.encode()


def label(settings: dict[str, str]) -> str:
    """The server for messages: hosts, port and database, without credentials."""
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    port = settings.get("port") or "5432"
    return f"postgresql://{host}:{port}/{settings.get('dbname') or settings.get('user') or ''}"
