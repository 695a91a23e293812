"""Connections of PyMySQL, and of aiomysql in `loop_driver`, behind one small interface: connect, send one
statement, read everything that it returns.

Only what needs the driver's internals is here: the time limit of each statement comes from the deadline of
its call, a connection is closed without a word to the server, and all results of a procedure are read, also
an error that comes after its rows.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from interlock._support import native, standard_streams
from interlock.backends.kit.libraries import missing
from interlock.backends.sql import resolver
from interlock.backends.sql.mysql import login
from interlock.backends.sql.mysql.calls import Results
from interlock.backends.sql.mysql.errors import connect_error, server_error, system_error, timeout_error
from interlock.backends.sql.mysql.results import MAX_PACKET_BYTES, Failed, ResultReader
from interlock.errors import InterlockError, StoreUnfit, Unreached

QUERY = 3  # COM_QUERY
COM_QUERY = bytes([QUERY])
GONE = 2006
ROLE = "role"  # in the settings of a connection: what follows `set role`; '' for none


def library(name: str) -> Any:
    """A driver, imported when it is first needed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        shown = {"pymysql": "PyMySQL"}.get(name, name)
        raise missing("MySQL or MariaDB", shown, "mysql", "PyMySQL", "aiomysql") from None


class Driver(Protocol):
    """One connection of a driver. The awaits of the blocking one block and never suspend."""

    async def connect(self, settings: Mapping[str, Any], timeout: float) -> None: ...
    async def query(self, sql: str, timeout: float) -> Results: ...
    def stale(self) -> bool: ...
    def discard(self) -> None: ...
    def abandon(self) -> None: ...


def failure(label: str, error: BaseException, timeout: float, *, connecting: bool = False) -> InterlockError:
    """The error for an exception of a driver."""
    if isinstance(error, InterlockError):
        return error
    cause = error.__cause__ or error.__context__
    if isinstance(cause, StoreUnfit):  # of `login`: both drivers wrap every OSError
        return cause
    if isinstance(error, TimeoutError) or isinstance(cause, TimeoutError):
        late = timeout_error(label, timeout)
        return Unreached(str(late)) if connecting else late
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 2013
    said = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return StoreUnfit(
            f"{label}: the server's way of authentication needs one more package: pip install cryptography"
        )
    if connecting:
        return system_error(label, cause) if isinstance(cause, OSError) else connect_error(label, code, said)
    return server_error(label, code, said)


class BlockingDriver:
    """PyMySQL: the time limits are those of the socket."""

    def __init__(self, label: str, connection: Any = None) -> None:
        self._label = label
        self._connection = connection  # or one that was borrowed from a user's engine

    async def connect(self, settings: Mapping[str, Any], timeout: float) -> None:
        standard_streams.occupy()
        given = {**settings, "connect_timeout": timeout, "read_timeout": timeout, "write_timeout": timeout}
        role = given.pop(ROLE, "")
        connection = self._connection = _unconnected(self._label, given)
        try:
            connection.connect(_dialled(self._label, given, timeout))
            if role:
                await self.query(f"set role {role}", timeout)
        except Exception as error:
            self.discard()
            raise failure(self._label, error, timeout, connecting=True) from None
        except BaseException:
            self.discard()
            raise

    async def query(self, sql: str, timeout: float) -> Results:
        self.send(sql, timeout)
        return self.receive(timeout)

    def send(self, sql: str, timeout: float) -> None:
        """Send a statement. Its results must be read before the next one is sent."""
        connection = self._connection
        connection._read_timeout = connection._write_timeout = timeout
        data = sql.encode()
        try:
            if (
                connection._result is None
                and connection._sock is not None
                and len(data) < MAX_PACKET_BYTES - 1
            ):
                _send(connection, data, timeout)
            else:  # PyMySQL puts away what its last statement has left
                connection._execute_command(QUERY, data)
        except Exception as error:
            raise failure(self._label, error, timeout) from None

    def receive(self, timeout: float) -> Results:
        """Everything that the statement returns."""
        connection = self._connection
        try:
            if timeout != connection._read_timeout:
                connection._read_timeout = connection._current_timeout = timeout
                connection._sock.settimeout(timeout)
            return ResultReader(connection).results()
        except Exception as error:
            raise failure(self._label, error, timeout) from None

    def answered(self, timeout: float) -> bool:
        """Wait for the first bytes of an answer; False if none came in time."""
        return readable(self._connection._sock.fileno(), timeout)

    def shut_down(self) -> None:
        """End a read in which another thread is blocked."""
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone already

    def stale(self) -> bool:
        sock = getattr(self._connection, "_sock", None)
        return sock is None or readable(sock.fileno())

    def discard(self) -> None:
        if self._connection is not None:
            self._connection._force_close()

    def abandon(self) -> None:
        """Closes our copy of the socket; the parent's stays open, since nothing is sent.

        Its buffered reader is kept and never used: a thread of the parent may have been reading from it, and
        in the child nobody will give back the lock that it had, so closing the reader would hang for ever.
        """
        connection = self._connection
        if connection is None or connection._sock is None:
            return
        _parents.append(connection._rfile)
        descriptor = connection._sock.detach()
        connection._rfile = connection._sock = None
        os.close(descriptor)


_parents: list[object] = []
"""In a child: what its parent was reading from."""


def _dialled(label: str, settings: Mapping[str, Any], timeout: float) -> socket.socket | None:
    """The socket for a new connection. PyMySQL itself would look the host up without a time limit, and give
    each of its addresses all of the time.

    None where PyMySQL makes the socket: a local one, or one for greenlets, which look names up without
    blocking each other.
    """
    if settings.get("unix_socket") or native.green("socket"):
        return None
    try:
        made = resolver.dial(settings["host"], settings["port"], timeout)
    except TimeoutError:
        raise
    except OSError as error:
        raise system_error(label, error) from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


def _send(connection: Any, data: bytes, timeout: float) -> None:
    """Send a short statement as PyMySQL does, in fewer calls."""
    sock = connection._sock
    sock.settimeout(timeout)
    connection._current_timeout = timeout
    try:
        sock.sendall((len(data) + 1).to_bytes(4, "little") + COM_QUERY + data)
    except TimeoutError:
        raise
    except OSError as error:
        raise Failed(GONE, f"the connection has ended ({error})") from None


def _unconnected(label: str, settings: Mapping[str, Any]) -> Any:
    """A connection of PyMySQL that is not made yet.

    Without settings for TLS, later versions of PyMySQL use TLS where the server offers it, and check nothing.
    For this each connection would load all certificates of the system, which takes longer than everything
    else about it: so all share one context that loads none.
    """
    kind = _connection_type()
    if "ssl" in settings:
        connection = kind(**settings, defer_connect=True)
        connection.interlock_label = label
        return connection
    connection = kind(**settings, defer_connect=True, ssl_disabled=True)
    connection.interlock_label = label
    if hasattr(connection, "_ssl_required"):
        connection.ssl, connection.ctx = True, _unchecked()
    return connection


@cache
def _connection_type() -> Any:
    """Connections of PyMySQL that do not send the password in clear to a server that may be anybody."""
    base: Any = library("pymysql.connections").Connection

    class Connection(base):  # type: ignore[misc]
        interlock_label = ""

        def _request_authentication(self) -> None:
            # Later versions also have TLS that is used if the server offers it.
            demanded = bool(getattr(self, "_ssl_required", self.ssl))
            login.check_greeting(self, self.interlock_label, demanded=demanded)
            base._request_authentication(self)

        def _process_auth(self, plugin_name: bytes, *rest: Any) -> Any:
            trusted = login.trusted(self.ctx if self.ssl else None, self.unix_socket)
            login.check_plugin(self.interlock_label, plugin_name, trusted=trusted)
            return base._process_auth(self, plugin_name, *rest)

    return Connection


@cache
def _unchecked() -> Any:
    """The settings of TLS with a server that nobody checks."""
    import ssl  # here, not above: the driver has loaded it by now

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def readable(descriptor: int, timeout: float = 0.0) -> bool:
    """Whether the server has sent something. If that was unasked, it has closed the connection."""
    if descriptor < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], timeout)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))
