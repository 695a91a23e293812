"""The connection that listens: NOTIFY on the channel of this process arrives there, and nothing else happens on it.

A listener that were in a transaction would fill the queue of notifications for the whole server, so this one never is. If nothing arrives for a
while it asks the server whether it lives: a black hole must not look like silence.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any

from interlock._core.drive import drive
from interlock.backends.sql.postgresql.link import BlockingWaits, PostgresLink
from interlock.errors import InterlockError

PROBE = 0.3  # seconds for a notification to come back to us; directly it takes 2 ms


class NoNotifications(Exception):
    """Notifications do not arrive on this connection: a pooler in transaction mode is in between."""


class PostgresSubscription:
    """See `dialect.Subscription`. Made blocking, on the listener's thread."""

    def __init__(self, make: Callable[[], PostgresLink], timeout: float) -> None:
        self.bell = f"il_{os.urandom(8).hex()}"
        self._make = make
        link = self._link = make()
        self._reading, self._writing = os.pipe()
        self._asked = False
        try:
            drive(link.open(timeout), nested=True)
            self._listen(time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._poll.register(self._reading, select.POLLIN)

    @property
    def _pgconn(self) -> Any:
        return self._link.pgconn

    def _listen(self, until: float) -> None:
        drive(self._link.query(f'listen "{self.bell}"'.encode(), until), nested=True)
        if self._link.direct:
            return
        # Something is in between. In session mode it delivers notifications all the same. Another session must ring: what a session tells
        # itself comes back with its own answer, in every mode.
        other = self._make()
        try:
            drive(other.open(until - time.monotonic()), nested=True)
            drive(other.query(f"select pg_notify('{self.bell}', '')".encode(), until), nested=True)
        finally:
            other.discard()
        patient = time.monotonic() + PROBE
        while not self._arrived():
            left = patient - time.monotonic()
            if left <= 0 or not drive(BlockingWaits().readable(self._pgconn.socket, left), nested=True):
                raise NoNotifications
            self._pgconn.consume_input()

    def _arrived(self) -> list[str]:
        messages: list[str] = []
        while (notify := self._pgconn.notifies()) is not None:
            messages.append(notify.extra.decode("utf-8", "replace"))
        return messages

    def receive(self, timeout: float) -> list[str]:
        try:
            return self._receive(timeout)
        except (InterlockError, OSError, ValueError, AttributeError) as error:
            raise OSError(str(error)) from None
        except Exception as error:  # of psycopg: the connection is lost
            raise OSError(str(error)) from None

    def _receive(self, timeout: float) -> list[str]:
        pgconn = self._pgconn
        ready = {number for number, _ in self._poll.poll(timeout * 1000)}
        if self._reading in ready:
            raise OSError("interrupted")
        if not ready:
            self._ask()
            return []
        pgconn.consume_input()
        while self._asked and not pgconn.is_busy():
            if pgconn.get_result() is None:
                self._asked = False
        return self._arrived()

    def _ask(self) -> None:
        """Whether the server is there; it has until the next silence to answer."""
        if self._asked:
            raise OSError("the server does not answer")
        self._pgconn.send_query(b"")
        self._pgconn.flush()
        self._asked = True

    def interrupt(self) -> None:
        try:
            os.write(self._writing, b"x")
        except OSError:
            pass  # closed already

    def close(self) -> None:
        self._link.discard()
        self._close_pipe()

    def abandon(self) -> None:
        self._link.abandon()
        self._close_pipe()

    def _close_pipe(self) -> None:
        for descriptor in (self._reading, self._writing):
            if descriptor >= 0:
                os.close(descriptor)
        self._reading = self._writing = -1
