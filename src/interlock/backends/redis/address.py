"""Where a Redis server is and how to log in to it; redis-py or valkey-py opens the connections.

The client library does no more than that: address, TLS, user name, password and database. Every command after
the login is ours, because the library's command layer retries silently and costs several times what a lock
does.
"""

from __future__ import annotations

import time
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from interlock._support import native, standard_streams
from interlock.backends.kit import resolver
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.kit.libraries import missing
from interlock.backends.redis import connection_attempt
from interlock.backends.redis.errors import (
    connect_error,
    protocol_error,
    reply_error,
    timeout_error,
    unreachable,
)
from interlock.backends.redis.user_clients import check_client, check_cluster
from interlock.backends.redis.wire.resp import LONG_ARRAY, ErrorReply, ProtocolError
from interlock.errors import InterlockError, InvalidURL, StoreUnavailable, StoreUnfit, Unsupported
from interlock.store import CONNECT_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.redis.tls import SharedContext

# The settings of a user's connections that ours take over. The rest is about commands, pools and retries.
SETTINGS = {
    *("host", "port", "path", "db", "username", "password", "credential_provider", "client_name"),
    *("socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type", "encoding"),
}
OBJECTS = {"credential_provider", "socket_keepalive_options", "socket_type"}
"""Settings of a user's connections whose values no URL can spell."""

A_NUMBER = "write a number"
WANTED = {
    "ssl_cert_reqs": "write none, optional or required",
    "ssl_include_verify_flags": "write names of ssl.VerifyFlags",
    "ssl_exclude_verify_flags": "write names of ssl.VerifyFlags",
}
"""What the values of a URL's options must be, unless they are numbers."""
MAX_LOGIN_BYTES = 2**20  # bytes of all answers to a login
KINDS = ("SSLConnection", "UnixDomainSocketConnection", "Connection")  # the most special first


class Route(Protocol):
    """Opens connections to the server that a request is for: one address, or the present master."""

    @property
    def label(self) -> str: ...
    @property
    def connect_timeout(self) -> float: ...
    @property
    def pace(self) -> ConnectPace: ...
    def connect(self, timeout: float) -> Any: ...
    async def connect_async(self, timeout: float) -> Any: ...


class Address:
    """One server, as a URL or a user's client names it. Its repr shows no password."""

    def __init__(
        self, package: str, kind: str, settings: dict[str, Any], connect_timeout: float = CONNECT_TIMEOUT
    ) -> None:
        self.connect_timeout = connect_timeout  # seconds a connection may take, the handshake included
        self.pace = ConnectPace(connect_timeout)
        self._package = package  # redis or valkey
        self._kind = kind  # the name of the connection's class, the same for sync and async
        self._settings = {k: v for k, v in settings.items() if k in SETTINGS or k.startswith("ssl")}
        self.label = _label(kind, settings)
        self.tls = kind == "SSLConnection"
        self._named = resolver.named(settings.get("host"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    @classmethod
    def of_url(cls, url: str, connect_timeout: float = CONNECT_TIMEOUT) -> Address:
        package = _library()
        try:
            settings = import_module(f"{package}.connection").parse_url(url)
        except ValueError:  # its text may quote the password
            raise InvalidURL(_misread(package, url)) from None
        kind = settings.pop("connection_class", None)
        kind_name = "Connection" if kind is None else kind.__name__
        _check_options(kind, kind_name, settings)
        if kind_name == "SSLConnection" and settings.get("ssl_cert_reqs") != "none":
            # valkey-py, and redis-py before 6, accept any name by themselves, and send the password to it.
            settings.setdefault("ssl_check_hostname", True)
        return cls(package, kind_name, settings, connect_timeout)

    @classmethod
    def of_client(cls, client: Any, connect_timeout: float = CONNECT_TIMEOUT) -> Address:
        """The server behind a client of redis-py or valkey-py, blocking or asyncio; its pool is left
        alone.
        """
        pool = getattr(client, "connection_pool", None)
        if pool is None or not hasattr(pool, "connection_kwargs"):
            raise Unsupported(
                f"{type(client).__name__} is no client of one server; give connect a redis.Redis, or a URL"
            )
        check_client(client)
        names = [parent.__name__ for parent in pool.connection_class.__mro__]
        kind = next((kind for kind in KINDS if kind in names), "Connection")
        modules = [parent.__module__.partition(".")[0] for parent in pool.connection_class.__mro__]
        package = "valkey" if "valkey" in modules else "redis"
        return cls(package, kind, pool.connection_kwargs, connect_timeout)

    @classmethod
    def of_cluster(cls, client: Any, connect_timeout: float = CONNECT_TIMEOUT) -> Address:
        """How a `RedisCluster` of redis-py or valkey-py, sync or async, logs in to its nodes; without
        their addresses.
        """
        check_cluster(client)
        settings = dict(client.nodes_manager.connection_kwargs)
        kind = getattr(settings.get("connection_class"), "__name__", "Connection")
        if settings.pop("ssl", False):
            kind = "SSLConnection"
        modules = [parent.__module__.partition(".")[0] for parent in type(client).__mro__]
        package = "valkey" if "valkey" in modules else "redis"
        return cls(package, kind, settings, connect_timeout)

    @property
    def host(self) -> str:
        """The host that the URL names; empty for a socket of this machine."""
        return "" if self._settings.get("path") else str(self._settings.get("host") or "localhost")

    def at(self, host: str, port: int) -> Address:
        """Another server, with the same way of logging in."""
        settings = {**self._settings, "host": host, "port": port}
        return Address(self._package, self._kind, settings, self.connect_timeout)

    def for_sentinels(self, username: str | None, password: str | None) -> Address:
        """The same kind of connection, for sentinels, which have users of their own and no databases."""
        other = ("db", "username", "password", "credential_provider")
        settings = {name: value for name, value in self._settings.items() if name not in other}
        settings.update(username=username, password=password)
        return Address(self._package, self._kind, settings, self.connect_timeout)

    def connect(self, timeout: float) -> Any:
        """A connection of the client library, with its handshake done, within about `timeout` seconds."""
        if not self._named or native.green("socket"):  # green sockets belong to the thread that makes them
            return self._connected(timeout)
        try:
            return connection_attempt.made(self.label, self._connected, timeout)
        except TimeoutError:
            raise self.timeout_error(timeout) from None

    def _connected(self, timeout: float) -> Any:
        standard_streams.occupy()
        enter = partial(_enter, trips=_RoundTrips(), until=time.monotonic() + timeout)
        # Each library calls this option by its own name.
        connection, shared_context = self._make(
            "connection", timeout, **{f"{self._package}_connect_func": enter}
        )
        host = getattr(connection, "host", None)
        if isinstance(host, str) and host.isascii() and not self.tls:  # TLS compares it with the certificate
            connection.host = _AsciiHost(host, "ascii")
        try:
            connection.connect()
        except Exception as error:
            connection.disconnect()
            raise self._error_for(error, timeout, shared_context) from None
        if host is not None:
            connection.host = host
        return connection

    async def connect_async(self, timeout: float) -> Any:
        import asyncio

        until = time.monotonic() + timeout
        standard_streams.occupy()
        connection, shared_context = self._make("asyncio.connection", timeout)
        connected = False
        trips = _RoundTrips()
        trips.watch_async(connection)
        try:
            if self._named:
                await resolver.looked_up(self._settings["host"], None, timeout)
            async with asyncio.timeout(max(0.001, until - time.monotonic())):
                await connection.connect()
            connected = True
        except TimeoutError:
            raise self.timeout_error(timeout) from None
        except Exception as error:
            raise self._error_for(error, timeout, shared_context) from None
        finally:
            trips.done(connection)
            if not connected and getattr(connection, "_writer", None) is not None:
                connection._writer.transport.abort()  # a handshake that was cut short leaves its socket open
                connection._writer = connection._reader = None
        return connection

    def _make(self, module: str, timeout: float, **more: Any) -> tuple[Any, SharedContext | None]:
        made = import_module(f"{self._package}.{module}")
        settings = dict(self._settings)
        wanted = settings.get("socket_connect_timeout")
        settings["socket_connect_timeout"] = min(wanted, timeout) if wanted else timeout
        retry = import_module(f"{self._package}.{'asyncio.' if 'asyncio' in module else ''}retry")
        backoff = import_module(f"{self._package}.backoff")
        never = retry.Retry(backoff.NoBackoff(), 0)  # the caller decides whether to ask again
        more.update(socket_timeout=timeout, protocol=2, retry=never, **_driver_info(self._package))
        kind = getattr(made, self._kind)
        if not self.tls:
            return kind(**settings, **more), None
        from interlock.backends.redis.tls import (  # here, not above: it loads `ssl`
            SharedContext,
            accepted_options,
        )

        shared_context = SharedContext(self._package, settings)
        connection = kind(**accepted_options(self.label, kind, settings), **more)
        shared_context.apply(self.label, connection, settings)
        return connection, shared_context

    def timeout_error(self, timeout: float) -> StoreUnavailable:
        """The error for a server that did not answer in time, with the likely reasons."""
        reasons = ["this port is not for TLS"] * self.tls + ["its name cannot be looked up"] * self._named
        return timeout_error(self.label, timeout, *reasons)

    def _error_for(
        self, error: Exception, timeout: float, shared_context: SharedContext | None = None
    ) -> InterlockError:
        """The error for a failed handshake.

        The library drops the code of an error reply, so its exception class decides.
        """
        names = [parent.__name__ for parent in type(error).__mro__]
        if "TimeoutError" in names:
            return self.timeout_error(timeout)
        said = str(error)
        for name, code in (
            ("AuthenticationError", "NOAUTH" if "required" in said.lower() else "WRONGPASS"),
            ("NoPermissionError", "NOPERM"),
            ("BusyLoadingError", "LOADING"),
            ("MaxClientsError", "max number of clients"),
        ):
            if name in names:
                return reply_error(self.label, ErrorReply(f"{code} {said}"))
        if (
            "InvalidResponse" in names
            or isinstance(error, (ProtocolError, MemoryError, RecursionError))
            or "Protocol error" in said
        ):
            return protocol_error(self.label, error)
        if "ResponseError" in names or any(word in said for word in ("DENIED", "max number of clients")):
            return reply_error(self.label, ErrorReply(said))
        if isinstance(error, (TypeError, ValueError)):  # an option the library does not take
            return StoreUnfit(f"{self.label}: {said}")
        if (cause := _cause(error)) is not None:
            if shared_context is not None:
                shared_context.invalidate(cause)
            return connect_error(self.label, cause, tls=self.tls)
        return unreachable(self.label, said.rstrip("."))


class _AsciiHost(bytes):
    """A host as the system's lookup takes it.

    For a str, the lookup would load `encodings.idna`, which takes some ms.
    """

    def __str__(self) -> str:
        return self.decode()


@cache
def _driver_info(package: str) -> dict[str, Any]:
    """How connections name their library to the server.

    By itself redis-py 8 reads its version from disk for each of them.
    """
    try:
        module = import_module(f"{package}.driver_info")
    except ImportError:  # valkey-py, or an older redis-py, which reads it once
        return {}
    return {"driver_info": module.DriverInfo(lib_version=import_module(package).__version__)}


def _cause(error: Exception) -> OSError | None:
    """The system's own error, which the library wraps into its message."""
    cause = error if isinstance(error, OSError) else error.__context__
    # Only the error that the message quotes: the context may be an unrelated error that the caller is
    # handling.
    if isinstance(cause, OSError) and cause.args and str(cause.args[-1]) in str(error):
        return cause
    return None


class _RoundTrips:
    """Measures the round-trip time to the server while a connection is made."""

    def __init__(self) -> None:
        self._sent = 0.0
        self._shortest = float("inf")
        self._stream: Any = None

    def sent(self) -> None:
        self._sent = time.monotonic()

    def answered(self) -> None:
        """Note a reply. The shortest round trip counts, since something else held up the longer ones."""
        self._shortest = min(self._shortest, time.monotonic() - self._sent)

    def watch_async(self, connection: Any) -> None:
        send, read = connection.send_packed_command, connection.read_response

        async def send_timed(*args: Any, **settings: Any) -> Any:
            self._bound(connection)
            self.sent()
            return await send(*args, **settings)

        async def read_timed(*args: Any, **settings: Any) -> Any:
            try:
                return await read(*args, **settings)
            finally:
                # An error reply counts too: old servers refuse the command that names the library.
                self.answered()

        connection.send_packed_command, connection.read_response = send_timed, read_timed

    def _bound(self, connection: Any) -> None:
        """Bound what the client library reads on an event loop, once the connection has its stream."""
        if self._stream is None:
            self._stream = stream = connection._reader
            feed, login = stream.feed_data, _Login()

            def feed_bounded(data: bytes) -> None:
                try:
                    login.arrived(data)
                except ProtocolError as error:
                    stream.set_exception(error)
                else:
                    feed(data)

            stream.feed_data = feed_bounded

    def done(self, connection: Any) -> None:
        """Restore the connection's methods, and leave the measured time on it."""
        del connection.send_packed_command, connection.read_response
        if self._stream is not None:
            del self._stream.feed_data
        connection.interlock_trip = self._shortest if self._shortest < float("inf") else 0.0


def round_trip(connection: Any) -> float:
    """The shortest round trip in seconds, as measured when the connection was made."""
    trip: float = getattr(connection, "interlock_trip", 0.0)
    return trip


def _enter(connection: Any, trips: _RoundTrips, until: float) -> None:
    """Run the library's handshake with one deadline for all of its replies.

    By itself the library gives each reply the whole time. A slow server could then hold up a renewal for
    several times its lease, and the holder would learn of the loss too late.
    """
    send, read = connection.send_packed_command, connection.read_response

    def send_timed(*args: Any, **settings: Any) -> Any:
        trips.sent()
        return send(*args, **settings)

    def read_in_time(*args: Any, **settings: Any) -> Any:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection._sock.settimeout(left)
        try:
            return read(*args, **settings)
        finally:
            # An error reply counts too: old servers refuse the command that names the library.
            trips.answered()

    connection.send_packed_command, connection.read_response = send_timed, read_in_time
    sock = connection._sock
    connection._sock = _LoginSocket(sock)
    try:
        connection.on_connect()
    finally:
        connection._sock = sock
        trips.done(connection)


class _Login:
    """The bounds of what the client library reads while it logs in: a few short lines, and no array."""

    def __init__(self) -> None:
        self._size = 0
        self._end = b""

    def arrived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_LOGIN_BYTES or LONG_ARRAY.search(self._end + data + b"\n"):
            raise ProtocolError("the answer to the login is too long")
        self._end = (self._end + data)[-16:]


class _LoginSocket:
    """The socket as the client library reads it while it logs in."""

    def __init__(self, sock: Any) -> None:
        self._sock, self._login = sock, _Login()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, *args: Any) -> bytes:
        data: bytes = self._sock.recv(*args)
        self._login.arrived(data)
        return data

    def recv_into(self, buffer: Any, *args: Any) -> int:
        size: int = self._sock.recv_into(buffer, *args)
        self._login.arrived(bytes(memoryview(buffer)[:size]))
        return size


def _label(kind: str, settings: dict[str, Any]) -> str:
    if settings.get("path"):
        return f"Redis at {settings['path']}"
    host = settings.get("host") or "localhost"
    # An IPv6 address is full of colons: brackets show where it ends.
    return f"Redis at {f'[{host}]' if ':' in host else host}:{settings.get('port') or 6379}"


def _check_options(kind: Any, kind_name: str, settings: dict[str, Any]) -> None:
    """Refuse the options of a URL that a connection would not take."""
    label, tls = _label("", settings), [name for name in settings if name.startswith("ssl")]
    known = SETTINGS - OBJECTS - ({"host", "port"} if kind_name.startswith("Unix") else {"path"})
    if tls and kind_name != "SSLConnection":
        raise InvalidURL(
            f"{label}: {tls[0]} is an option of TLS; write rediss://, rediss+sentinel://, "
            "rediss+cluster:// or "
            "redlocks://"
        )
    if tls:
        from interlock.backends.redis.tls import known_options  # here, not above: it loads `ssl`

        known |= known_options(kind)
    if unknown := [name for name in settings if name not in known]:
        raise InvalidURL(
            f"{label}: unknown option {unknown[0]!r}; known are prefix, db, client_name, "
            "connect_timeout, socket_connect_timeout, socket_keepalive and those of TLS, such as "
            "ssl_ca_certs"
        )
    if settings.get("ssl_cert_reqs", "none") not in ("none", "optional", "required"):
        raise InvalidURL(f"{label}: {_odd_value('ssl_cert_reqs')}")


def _odd_value(name: str) -> str:
    return f"the option {name} cannot have this value; {WANTED.get(name, A_NUMBER)}"


def _misread(package: str, url: str) -> str:
    """The sentence for a URL that the library cannot read; of its values none is quoted."""
    scheme, _, rest = url.partition("://")
    parse = import_module(f"{package}.connection").parse_url
    for option in rest.partition("?")[2].split("&"):
        try:
            parse(f"{scheme}://?{option}")
        except ValueError:
            return f"{scheme}://: {_odd_value(option.partition('=')[0])}"
    return f"{scheme}://: the hosts cannot be read; in a user name or password write %5B for [ and %5D for ]"


def _library() -> str:
    for package in ("redis", "valkey"):
        try:
            import_module(package)
        except ImportError:
            continue
        return package
    raise missing("Redis", "redis-py", "redis", "redis", "hiredis")
