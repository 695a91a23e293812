"""Connections of aiomysql, or of asyncmy where a user's engine has them, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

from interlock._support import standard_streams
from interlock.backends.sql.mysql import login
from interlock.backends.sql.mysql.calls import Results
from interlock.backends.sql.mysql.driver import ROLE, failure, library, readable

_parents: list[Any] = []
"""In a forked child: the connections of the parent, kept so that nothing says goodbye to the server on its
behalf.
"""


class LoopDriver:
    """One connection on the event loop that made it.

    A statement that is cancelled leaves it useless, and the base discards it.
    """

    def __init__(self, label: str, connection: Any = None) -> None:
        self._label = label
        self._connection = connection  # or one that was borrowed from a user's engine
        self._loop: Any = asyncio.get_running_loop() if connection is not None else None

    async def connect(self, settings: Mapping[str, Any], timeout: float) -> None:
        standard_streams.occupy()
        kind = _connection_type()
        self._loop = asyncio.get_running_loop()
        given = {name: value for name, value in settings.items() if name not in ("database", ROLE)}
        connection = self._connection = kind(**given, db=settings["database"])
        connection.interlock_label = self._label
        try:
            async with asyncio.timeout(timeout):
                await connection._connect()
                if settings.get(ROLE):
                    await connection.query(f"set role {settings[ROLE]}")
        except Exception as error:
            self.discard()
            raise failure(self._label, error, timeout, connecting=True) from None
        except BaseException:
            self.discard()
            raise

    async def query(self, sql: str, timeout: float) -> Results:
        connection = self._connection
        try:
            async with asyncio.timeout(timeout):
                await connection.query(sql)
                result = connection._result
                results = [result.rows] if result.rows is not None else []
                while result.has_next:
                    await connection.next_result()
                    result = connection._result
                    if result.rows is not None:
                        results.append(result.rows)
                return results
        except Exception as error:
            raise failure(self._label, error, timeout) from None

    def stale(self) -> bool:
        reader, writer = self._connection._reader, self._connection._writer
        if writer is None or reader.at_eof() or writer.transport.is_closing():
            return True
        sock = writer.get_extra_info("socket")
        return sock is None or readable(sock.fileno())

    def discard(self) -> None:
        connection = self._connection
        writer = getattr(connection, "_writer", None)
        if writer is None:
            return
        connection._writer = connection._reader = None  # closing it is our business from here on
        if self._loop.is_closed():
            _close_socket(writer.transport)
            return
        try:
            if asyncio._get_running_loop() is self._loop:
                writer.transport.abort()
            else:
                self._loop.call_soon_threadsafe(writer.transport.abort)
        except RuntimeError:  # the loop was closed meanwhile
            _close_socket(writer.transport)

    def abandon(self) -> None:
        _parents.append(self._connection)


@cache
def _connection_type() -> Any:
    """Connections of aiomysql that do not send the password in clear to a server that may be anybody."""
    base: Any = library("aiomysql.connection").Connection

    class Connection(base):  # type: ignore[misc]
        interlock_label = ""

        async def _request_authentication(self) -> None:
            login.check_greeting(self, self.interlock_label, demanded=self._ssl_context is not None)
            self._check_plugin(self._server_auth_plugin)  # it answers the greeting with the password, too
            await base._request_authentication(self)

        async def _process_auth(self, plugin_name: bytes, *rest: Any) -> Any:
            self._check_plugin(plugin_name)
            return await base._process_auth(self, plugin_name, *rest)

        def _check_plugin(self, plugin: bytes | str) -> None:
            trusted = login.trusted(self._ssl_context, self._unix_socket)
            login.check_plugin(self.interlock_label, plugin, trusted=trusted)

    return Connection


def _close_socket(transport: Any) -> None:
    """Close the socket of a transport whose event loop will never run again."""
    sock = getattr(transport, "_sock", None) or getattr(
        getattr(transport, "_ssl_protocol", None), "_transport", None
    )
    sock = getattr(sock, "_sock", sock)
    if sock is not None:
        sock.close()
    transport._sock = None
