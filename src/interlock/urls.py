"""Turns a URL, or a client object of another library, into a store.

A backend is imported when it is first asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from interlock._core.runtime import Runtime
from interlock._support.wording import either
from interlock.errors import InterlockError, InvalidSetting, InvalidURL
from interlock.store import CONNECT_TIMEOUT, Store

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from interlock.backends.memory import Space


class PooledClient(Protocol):
    """A client of redis-py or valkey-py, blocking or asyncio, which `connect` accepts in place of a URL."""

    @property
    def connection_pool(self) -> Any: ...


class ClusterClient(Protocol):
    """A client of redis-py or valkey-py for a whole Cluster, blocking or asyncio."""

    @property
    def nodes_manager(self) -> Any: ...


class ConnectionPool(Protocol):
    """A pool of psycopg, blocking or asyncio, which `connect` accepts in place of a URL."""

    def getconn(self, timeout: float | None = None) -> Any: ...
    def putconn(self, conn: Any) -> Any: ...


class DatabaseEngine(Protocol):
    """An engine of SQLAlchemy, blocking or asyncio."""

    def raw_connection(self) -> Any: ...
    @property
    def dialect(self) -> Any: ...


class KazooClient(Protocol):
    """A client of kazoo, whose ensemble, credentials and TLS are used."""

    @property
    def client_id(self) -> Any: ...
    @property
    def chroot(self) -> Any: ...


ClientObject: TypeAlias = "PooledClient | ClusterClient | ConnectionPool | DatabaseEngine | KazooClient"
URLOrClient: TypeAlias = "str | ClientObject | Sequence[str | PooledClient]"
"""What `connect` accepts: a URL, a client object, or a list of these for a quorum of servers."""


def open_store(
    url: URLOrClient | None, runtime: Runtime, *, asynchronous: bool, connect_timeout: float | None = None
) -> Store:
    """Open the store that `url` names; without a URL, the one in $INTERLOCK_URL or the user's embedded SQLite
    file.

    `connect_timeout` is the number of seconds that connecting may take; None stands for the one in the URL,
    or the default.
    """
    if connect_timeout is not None:
        _check_connect_timeout(connect_timeout)
    if url is None:
        url = default()
    if not isinstance(url, (str, list, tuple)):
        return _open_client(url, runtime, asynchronous, connect_timeout or CONNECT_TIMEOUT)
    handled = sys.exception()
    try:
        if isinstance(url, str):
            return _open_url(url, runtime, asynchronous, connect_timeout)
        return _open_nodes(url, runtime, asynchronous, connect_timeout)
    except InterlockError as error:
        # What a library said of the URL may quote the password, and error reporters follow `__context__`.
        error.__context__ = handled
        raise


def _open_url(url: str, runtime: Runtime, asynchronous: bool, connect_timeout: float | None) -> Store:
    parts = split(url)
    rest, said = _without_connect_timeout(parts.query)
    return _OPENERS[parts.scheme](
        parts._replace(query=rest), runtime, asynchronous, connect_timeout or said or CONNECT_TIMEOUT
    )


def settled(url: URLOrClient | None) -> str | list[str] | None:
    """Return URLs that name the same store in another process; None if it was not given by URLs.

    The working directory, $INTERLOCK_URL and the home directory may be different there.
    """
    if url is None:
        url = default()
    if isinstance(url, (list, tuple)):
        nodes = [node for node in url if isinstance(node, str)]
        return nodes if len(nodes) == len(url) else None
    if not isinstance(url, str):
        return None
    path = file_of(url)
    if path is None:
        return url
    from urllib.parse import quote

    query = split(url).query
    return f"sqlite:///{quote(path, errors='surrogateescape')}" + (f"?{query}" if query else "")


def _without_connect_timeout(query: str) -> tuple[str, float | None]:
    """Return the options of a URL without `connect_timeout`, which every store has, and its value, if it
    has one.
    """
    if "connect_timeout" not in query:
        return query, None
    from urllib.parse import parse_qsl

    options = parse_qsl(query, keep_blank_values=True)
    said = dict(options).get("connect_timeout")
    if said is None:  # it is part of another word
        return query, None
    try:
        seconds = float(said)
        _check_connect_timeout(seconds)
    except ValueError:
        raise InvalidURL(
            f"connect_timeout={said}: say how many seconds connecting may take, such as 5"
        ) from None
    # The others stay as they were written: libpq does not read a + as other libraries do.
    others = [option for option in query.split("&") if option.partition("=")[0] != "connect_timeout"]
    return "&".join(others), seconds


def timed(parts: SplitResult) -> tuple[SplitResult, float]:
    """Return a URL without its `connect_timeout`, and the seconds that connecting may take."""
    rest, said = _without_connect_timeout(parts.query)
    return parts._replace(query=rest), said or CONNECT_TIMEOUT


def _check_connect_timeout(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"connect_timeout must be a number of seconds, not {type(seconds).__name__}")
    if not 0.001 <= seconds <= 3600:  # also refuses nan
        raise InvalidSetting(f"connect_timeout must be between 0.001 and 3600 seconds, not {seconds:g}")


def split(url: str) -> SplitResult:
    """Split the URL of a store; `InvalidURL` if it is none.

    What is not quite a URL may have its password anywhere, so the errors quote nothing of it. Of a URL that
    is accepted here, only what stands before the last @ of its hosts, and the values of its options, may be
    secret.
    """
    scheme = url.partition("://")[0]
    if not is_url(url):
        raise InvalidURL(_unknown(url))
    try:
        parts = _split(url)
    except ValueError:  # its text quotes the hosts, and may quote the password with them
        parts = None
    if parts is None or not _hosts_are_plain(parts):
        raise InvalidURL(
            f"{scheme.lower()}://: the hosts cannot be read: each is a host or host:port, the port must be a "
            "number up to 65535, an address of IPv6 stands in brackets, [::1]:6379, and in a user name or "
            f"password {ESCAPES}"
        )
    if parts.scheme != "sqlite" and not _is_utf8(url):
        raise InvalidURL(f"{parts.scheme}://: this URL has bytes in it that are not UTF-8; write them as %XX")
    if parts.scheme == "sqlite" and parts.netloc:
        raise InvalidURL(
            "sqlite://: a file has no host; write sqlite:///relative/path or sqlite:////absolute/path"
        )
    if _strays(parts):
        raise InvalidURL(f"{parts.scheme}://: in a user name, a password or a path {ESCAPES}")
    return parts


def is_url(text: str) -> bool:
    """Whether a text begins as the URL of a store does; what follows may still be wrong."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in _OPENERS


ESCAPES = "write %2F for /, %3F for ?, %23 for #, %40 for @, %5B for [, %5D for ] and %25 for %"

NO_HOSTS = ("sqlite", "memory", "unix")

_NUMBERED = ("redis", "rediss", "redlock", "redlocks")
"""Schemes whose paths are the number of a database."""

_MAY_HAVE_AT = ("prefix", "schema", "user", "pass", "name", "principal", "ca", "cert", "key", "file", "sock")
"""Parts of the names of options whose values may have an @ in them."""


def _is_utf8(text: str) -> bool:
    """Whether a text can be sent; one from the environment has surrogates where its bytes were no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hosts_are_plain(parts: SplitResult) -> bool:
    """Whether each host is a name or an address, with a port or without: what looks like a port may be a
    password.
    """
    import re

    if parts.scheme in NO_HOSTS:
        return True
    hosts = parts.netloc.rpartition("@")[2].split(",")
    # %2F begins the folder of a socket, as libpq has it.
    plain = r"(?:\[[^\[\]]*\]|%2F[^:]*|[^:%\[\]\s]*)(?::([0-9]{1,5}))?"
    found = [re.fullmatch(plain, host, re.IGNORECASE) for host in hosts]
    return all(one is not None and int(one[1] or 0) < 65536 for one in found)


def _strays(parts: SplitResult) -> bool:
    """Whether an @ stands where there is none in a URL: probably at the end of a password with a / or ? in
    it.
    """
    if parts.scheme in ("sqlite", "memory"):
        return False
    before, at, _ = parts.path.replace("%40", "@").rpartition("@")
    if parts.scheme == "unix":  # the path of a socket may have an @ in it
        if ":" in before or (parts.netloc and not parts.netloc.endswith("@")):
            return True
    elif at:
        return True
    if ":" in parts.path and "@" in parts.query:
        return True
    for option in parts.query.split("&"):
        name = option.partition("=")[0].lower()
        if "@" in option and ("@" in name or not any(word in name for word in _MAY_HAVE_AT)):
            return True
    return "@" in parts.fragment


def _split(url: str) -> SplitResult:
    """Split a URL that may name several hosts.

    `urlsplit` alone refuses brackets (IPv6) in any host but the first.
    """
    from urllib.parse import urlsplit  # here, not above: `import interlock` stays light

    url = _login_escaped(url)
    scheme, slashes, rest = url.partition("://")
    hosts = rest[: _path_at(rest)]
    if "[" not in hosts:
        return urlsplit(url)
    return urlsplit(scheme + slashes + rest[len(hosts) :])._replace(netloc=hosts)


def _login_escaped(url: str) -> str:
    """Return a URL without brackets in its user name and password.

    urllib takes what stands in brackets for an address of IPv6. If it is none, the error quotes it, and may
    quote a password.
    """
    scheme, slashes, rest = url.partition("://")
    login = rest[: _path_at(rest)].rpartition("@")[0]
    escaped = login.replace("[", "%5B").replace("]", "%5D")
    return scheme + slashes + escaped + rest[len(login) :] if escaped != login else url


def _path_at(rest: str) -> int:
    """Where the hosts of a URL end, counted from the end of its ://."""
    return min((at for mark in "/?#" if (at := rest.find(mark)) >= 0), default=len(rest))


def _unknown(url: str) -> str:
    import re  # here, not above: `import interlock` stays light

    scheme, separator, _ = url.partition("://")
    if not separator:
        first = re.match(r"\W*([\w+]*)", url)
        meant = first[1].lower() if first else ""
        if meant in _OPENERS:
            return f"a URL of {meant} begins with {meant}://"
        return "a store is named by a URL; for a file write sqlite:///path/to/locks.db"
    from difflib import get_close_matches

    near = get_close_matches(scheme.lower(), list(_OPENERS), 1)
    hint = f"did you mean {near[0]}://?" if near else f"use {either(_OPENERS)}"
    return f"the scheme of this URL names no store interlock knows; {hint}"


def redacted(url: str) -> str:
    """Return the URL with its passwords hidden, for messages; what is no URL of a store is hidden as a
    whole.
    """
    try:
        parts = split(url)
    except InvalidURL:
        return "***"
    scheme, separator, rest = url.partition("://")
    address, mark, query = rest.partition("?")
    login, at, hosts = parts.netloc.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        # Without a colon it may be a password that stands in the place of the user.
        address = f"{user}:***" if colon else "***"
        address += f"@{hosts}{parts.path}"
    if parts.scheme in _NUMBERED and not (parts.path in ("", "/") or parts.path[1:].isdecimal()):
        address = address.removesuffix(parts.path) + "/***"  # no database: a password after a stray slash
    return scheme + separator + address + mark + "&".join(_hidden(option) for option in query.split("&"))


def without_password(word: str) -> str:
    """A word that stands in a wrong place: if it may be a URL, it is shown as `redacted` shows it."""
    import re  # here, not above: `import interlock` stays light

    return redacted(word) if "://" in word or re.search(r"(:|//).*@", word, re.DOTALL) else word


def _hidden(option: str) -> str:
    name, equals, _ = option.partition("=")
    if option and not equals:  # the end of a value with an & in it
        return "***"
    secret = any(word in name.lower() for word in ("pass", "pwd", "secret", "token", "auth"))
    return f"{name}{equals}***" if secret else option


def named(url: URLOrClient | None) -> str:
    """Return a URL without passwords for whatever `connect` was given."""
    if url is None:
        url = default()
    if isinstance(url, str):
        path = file_of(url)
        return redacted(url) if path is None else f"sqlite:///{path}"
    if isinstance(url, (list, tuple)):
        return ", ".join(named(node) for node in url)
    return _named_client(url)


def default() -> str:
    """Return the URL that is used if none is given."""
    return os.environ.get("INTERLOCK_URL") or "sqlite://"


def file_of(url: str) -> str | None:
    """Return the absolute path of the lock file that a URL of SQLite names; None for any other store."""
    if not url.lower().startswith("sqlite:"):
        return None
    from interlock.backends.sql.sqlite.file.location import absolute, default_path

    parts = split(url)
    path, _ = _sqlite_file(parts._replace(query=_without_connect_timeout(parts.query)[0]))
    return absolute(path or default_path())


def _named_client(client: Any) -> str:
    """Return a URL without passwords for the server of a user's client.

    It never raises, because it is used in a repr.
    """
    if "kazoo" in _library(client):
        hosts = ",".join(f"{host}:{port}" for host, port in getattr(client, "hosts", None) or ())
        return f"zookeeper://{hosts}{getattr(client, 'chroot', '') or ''}"
    if _library(client) & {"psycopg_pool", "sqlalchemy"}:
        address = getattr(client, "url", None)
        return "postgresql://" if address is None else str(address.set(query={}).render_as_string())
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        return f"redis+cluster://{','.join(sorted(getattr(nodes, 'startup_nodes', ())))}"
    pool = getattr(client, "connection_pool", None)
    settings = getattr(pool, "connection_kwargs", {})
    database = settings.get("db") or 0
    if service := getattr(pool, "service_name", None):
        return f"redis+sentinel://{service}/{database}"
    if path := settings.get("path"):
        return f"unix://{path}?db={database}"
    scheme = (
        "rediss" if "SSL" in getattr(getattr(pool, "connection_class", None), "__name__", "") else "redis"
    )
    host = settings.get("host") or "localhost"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.get('port') or 6379}/{database}"


# ---- the backends --------------------------------------------------------------

_spaces: dict[str, Space] = {}


def _open_memory(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`memory://` or `memory://name`: all clients of this process that use the same name share it."""

    from interlock._runtime.threads import Threads
    from interlock.backends.memory import MemoryStore, Space

    if parts.query or parts.fragment:
        raise InvalidURL("memory:// takes a name and no options: memory://name")
    name = parts.netloc + parts.path
    space = _spaces.get(name)
    if space is None:
        space = _spaces.setdefault(name, Space(runtime.now, runtime.mutex()))
    return MemoryStore(space, runtime, MemoryStore(space, Threads()) if asynchronous else None)


def _open_sqlite(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`sqlite://` is the user's own file, `sqlite:///rel` and `sqlite:////abs` name one."""
    from interlock.backends.sql.sqlite import open_store

    path, allow = _sqlite_file(parts)
    return open_store(path, runtime, asynchronous=asynchronous, allow_network_filesystem=allow)


def _sqlite_file(parts: SplitResult) -> tuple[str | None, bool]:
    """Return the path in the URL (None: the user's own file), and whether it may be on a network
    filesystem.
    """
    from urllib.parse import parse_qsl, unquote

    if parts.fragment:
        raise InvalidURL("sqlite:// takes no #fragment; write %23 for a # in a path")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    allow = options.pop("allow_network_filesystem", "0")
    if options or allow not in ("0", "1"):
        raise InvalidURL("sqlite:// knows one option: ?allow_network_filesystem=1")
    path = unquote(parts.path[1:], errors="surrogateescape")
    if "\x00" in path:
        raise InvalidURL("sqlite:// takes a path, and no path has a NUL in it")
    return path or None, allow == "1"


def _open_redis(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`redis://user:password@host:port/db?prefix=...`, `rediss://` with TLS, `unix:///path/to/socket`."""
    from interlock.backends.redis import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_sentinel(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`redis+sentinel://user:password@host:port,host:port/service/db?replicas=majority`."""
    from interlock.backends.redis.sentinel.open import open_sentinel_url

    return open_sentinel_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_cluster(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`redis+cluster://user:password@host:port,host:port?prefix=...&replicas=majority`."""
    from interlock.backends.redis.cluster.open import open_cluster_url

    return open_cluster_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_redlock(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`redlock://user:password@host:port,host:port,host:port/db?prefix=...`, `redlocks://` with TLS."""
    from interlock.backends.redlock import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_postgresql(
    parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float
) -> Store:
    """`postgresql://user:password@host:port/database?schema=...&durability=relaxed`, with all options of
    libpq.
    """
    from interlock.backends.sql.postgresql import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_zookeeper(
    parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float
) -> Store:
    """`zookeeper://user:password@host:port,host:port/chroot?session_timeout=30&tls=1`."""
    from interlock.backends.zookeeper import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_etcd(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`etcd://user:password@host:port,host:port,host:port?prefix=...`, `etcds://` with TLS."""
    from interlock.backends.etcd import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_mysql(parts: SplitResult, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """`mysql://user:password@host:port/database?prefix=...`, or `mariadb://`."""
    from interlock.backends.sql.mysql import open_url

    return open_url(parts, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_nodes(
    nodes: Sequence[object], runtime: Runtime, asynchronous: bool, connect_timeout: float | None
) -> Store:
    """Open a quorum of several servers, each given by a URL of Redis or a user's own client."""
    if not all(_is_address(node) if isinstance(node, str) else _is_client(node) for node in nodes):
        raise _wrong_kind(nodes)
    from interlock.backends.redlock import open_nodes

    named: list[object] = []
    longest = 0.0
    for node in nodes:
        if isinstance(node, str):
            rest, said = _without_connect_timeout(split(node).query)
            base = _login_escaped(node).partition("?")[0]
            node, longest = f"{base}?{rest}" if rest else base, max(longest, said or 0.0)
        named.append(node)
    node_timeout = connect_timeout or longest or CONNECT_TIMEOUT
    return open_nodes(named, runtime, asynchronous=asynchronous, connect_timeout=node_timeout)


def _is_address(text: str) -> bool:
    return text.startswith(("redis://", "rediss://", "unix://"))


def _is_client(client: object) -> bool:
    return bool(_library(client) & {"redis", "valkey"})


def _library(client: object) -> set[str]:
    """The packages that the class of a client object comes from."""
    return {parent.__module__.partition(".")[0] for parent in type(client).__mro__}


def _wrong_kind(given: object) -> TypeError:
    return TypeError(
        "connect takes a URL such as 'sqlite:///path/to/locks.db', a client of redis-py or kazoo, a pool of "
        "psycopg, an engine of SQLAlchemy, or, for a quorum, a list of URLs or clients of Redis, not "
        f"{type(given).__name__}"
    )


def _open_client(client: object, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """Open the store of a user's own client: with its address, TLS and credentials, but over our own
    connections.
    """
    if "kazoo" in _library(client):
        from interlock.backends.zookeeper import open_client as open_kazoo_client

        return open_kazoo_client(client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)
    if _library(client) & {"psycopg_pool", "sqlalchemy"}:
        return _open_sql_client(client, runtime, asynchronous, connect_timeout)
    if not _is_client(client):
        raise _wrong_kind(client)
    from interlock.backends.redis import open_client

    return open_client(client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)


def _open_sql_client(client: Any, runtime: Runtime, asynchronous: bool, connect_timeout: float) -> Store:
    """Open the store in the database of a pool of psycopg or an engine of SQLAlchemy; each call borrows a
    connection of it.
    """
    database = getattr(getattr(client, "dialect", None), "name", "postgresql")
    if database == "postgresql":
        from interlock.backends.sql.postgresql import open_client

        return open_client(client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)
    if database in ("mysql", "mariadb"):
        from interlock.backends.sql.mysql import open_client as open_engine

        return open_engine(client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout)
    raise _wrong_kind(client)


_OPENERS: dict[str, Callable[[SplitResult, Runtime, bool, float], Store]] = {
    "sqlite": _open_sqlite,
    "memory": _open_memory,
    "redis": _open_redis,
    "rediss": _open_redis,
    "unix": _open_redis,
    "redis+sentinel": _open_sentinel,
    "rediss+sentinel": _open_sentinel,
    "redlock": _open_redlock,
    "redlocks": _open_redlock,
    "redis+cluster": _open_cluster,
    "rediss+cluster": _open_cluster,
    "postgresql": _open_postgresql,
    "etcd": _open_etcd,
    "etcds": _open_etcd,
    "zookeeper": _open_zookeeper,
    "mysql": _open_mysql,
    "mariadb": _open_mysql,
}
