"""The connection that listens: NOTIFY on the channel of this process arrives there, and nothing else happens
on it.

A listener that were in a transaction would fill the queue of notifications for the whole server, so this one
never is. If nothing arrives for a while it asks the server whether it lives: a black hole must not look like
silence.
"""

from __future__ import annotations

import _socket
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from interlock._core.drive import drive
from interlock._support import native, standard_streams
from interlock.backends.sql.postgresql.connection import BlockingWaits, PostgresConnection
from interlock.errors import InterlockError

PROBE_S = 0.3  # seconds for a notification to come back to us; directly it takes 2 ms


class NoNotifications(Exception):
    """Notifications do not arrive on this connection: a pooler in transaction mode is in between."""


class PostgresSubscription:
    """See `dialect.PolledSubscription`. Made blocking, on the listener's thread.

    It is polled through a duplicate of libpq's socket. libpq closes its own one as soon as it meets the end
    of the connection, and a thread that still polled that number would poll some other file.
    """

    def __init__(self, make: Callable[[], PostgresConnection], timeout: float) -> None:
        self.bell = f"il_{os.urandom(8).hex()}"
        self._make = make
        connection = self._connection = make()
        self._socket: _socket.socket | None = None
        self._asked = False
        self.polls = hasattr(select, "poll") and not native.green("socket")
        try:
            drive(connection.open(timeout), nested=True)
            self._listen(time.monotonic() + timeout)
            standard_streams.occupy()
            self._socket = _socket.socket(fileno=os.dup(self._pgconn.socket))
        except BaseException:
            self.close()
            raise

    @property
    def _pgconn(self) -> Any:
        return self._connection.pgconn

    def _listen(self, until: float) -> None:
        drive(self._connection.query(f'listen "{self.bell}"'.encode(), until), nested=True)
        if self._connection.direct:
            return
        # Something is in between. In session mode it delivers notifications all the same. Another session
        # must ring: what a session tells itself comes back with its own answer, in every mode.
        other = self._make()
        try:
            drive(other.open(until - time.monotonic()), nested=True)
            drive(other.query(f"select pg_notify('{self.bell}', '')".encode(), until), nested=True)
        finally:
            other.discard()
        until = time.monotonic() + PROBE_S
        while not self._arrived(self._pgconn):
            left = until - time.monotonic()
            if left <= 0 or not drive(BlockingWaits().readable(self._pgconn.socket, left), nested=True):
                raise NoNotifications
            self._pgconn.consume_input()

    @staticmethod
    def _arrived(pgconn: Any) -> list[str]:
        messages: list[str] = []
        while (notify := pgconn.notifies()) is not None:
            messages.append(notify.extra.decode("utf-8", "replace"))
        return messages

    def fileno(self) -> int:
        return -1 if (sock := self._socket) is None else sock.fileno()

    def receive(self, timeout: float) -> list[str]:
        try:
            if timeout > 0 and not drive(BlockingWaits().readable(self.fileno(), timeout), nested=True):
                self.probe()
                return []
            pgconn = self._pgconn
            pgconn.consume_input()
            while self._asked and not pgconn.is_busy():
                if pgconn.get_result() is None:
                    self._asked = False
            return self._arrived(pgconn)
        except (InterlockError, ValueError, AttributeError, self._connection.driver_error) as error:
            raise OSError(str(error)) from None

    def probe(self) -> None:
        if self._asked:
            raise OSError("the server does not answer")
        try:
            self._pgconn.send_query(b"")
            self._pgconn.flush()
        except (AttributeError, self._connection.driver_error) as error:
            raise OSError(str(error)) from None
        self._asked = True

    def hang_up(self) -> None:
        if (sock := self._socket) is not None:
            with suppress(OSError):  # it is gone already
                sock.shutdown(_socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.discard()
        self._close_socket()

    def abandon(self) -> None:
        self._connection.abandon()
        self._close_socket()

    def _close_socket(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
