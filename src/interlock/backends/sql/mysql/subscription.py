"""The subscription: one side connection for each process that waits, asleep on the server until somebody
rings.

`listen` in procedures.sql looks for mail and sleeps. The procedure that lets a waiter in writes the mail in
its own transaction, and ends the sleep with `kill query`. The subscription is found by the named lock that
its connection holds, whose name is the bell. So only a subscription can be hit, on the server that it sleeps
on, and nobody after a restart.

Where that cannot work (a proxy that moves statements between connections, another node of a Galera cluster),
the mail is there all the same: the subscription finds it by looking, sooner and sooner while mail arrives
without a ring. A probe at the start finds out which it is.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from interlock._core.drive import drive
from interlock.backends.sql.dialect import Again
from interlock.backends.sql.mysql.calls import literal
from interlock.backends.sql.mysql.driver import BlockingDriver
from interlock.backends.sql.mysql.errors import Killed
from interlock.backends.sql.mysql.schema import Schema
from interlock.errors import InterlockError, StoreUnavailable

MAX_SLEEP_S = 1.0  # seconds of one sleep: a connection that we close stays in the server's list for no longer
MIN_MAIL_POLL_S = 0.02  # seconds between two looks for mail after some has come without a ring
MAX_MAIL_POLL_S = 0.25  # the same while none comes, where rings cannot arrive
GRACE_S = 2.0  # seconds beyond its sleep that a call may take before the connection counts as dead
MAX_READ_MAIL = 32  # numbers of read mail after which the mail is removed
LOCK_WAIT_S = 1  # seconds that a look waits for mail whose sender has not committed yet
ISOLATION = "set session transaction isolation level read committed"
PROBE_S = 2.0  # seconds that the probe sleeps; rings that arrive end it after milliseconds
MAX_PROBES = 3  # how often it is tried, while the server is late
LATE_S = 0.2  # seconds beyond its sleep: then the server stood still, and the rings may have done so with it


class MysqlSubscription:
    """See `interlock.backends.sql.dialect.Subscription`."""

    def __init__(self, driver: BlockingDriver, schema: Schema, label: str) -> None:
        self.bell = os.urandom(12).hex()
        self._driver = driver
        self._schema = schema
        self._label = label
        self._read: dict[int, None] = {}  # numbers of mail that was received and not removed yet
        self._pause = MAX_SLEEP_S  # the longest sleep: shorter once mail has come without a ring
        self._longest = MAX_SLEEP_S
        self._rung_in_vain = False  # whether the probe found that rings do not arrive
        self._closed = False

    def open(self, probe: Callable[[str], Any]) -> None:
        """Take the lock by which we are found, and see whether rings arrive.

        `probe` runs a statement on another connection.
        """
        self._ask(ISOLATION, GRACE_S)
        self._ask(f"set session innodb_lock_wait_timeout = {LOCK_WAIT_S}", GRACE_S)
        ((taken,),) = self._ask(f"select get_lock('interlock.{self.bell}', 0)", GRACE_S)[0]
        if taken != 1 or not self._rings_arrive(probe):
            self.look_often()
            self._rung_in_vain = taken == 1
            logging.getLogger("interlock").warning(
                "%s: wake-ups do not reach this process (a proxy, or a server without KILL); it looks for "
                "them every %g to %g s",
                *(self._label, MIN_MAIL_POLL_S, MAX_MAIL_POLL_S),
            )

    def look_often(self) -> None:
        """Look for mail also while nobody rings: some who send it cannot ring here."""
        self._pause = self._longest = MAX_MAIL_POLL_S
        self._rung_in_vain = False

    def _rings_arrive(self, probe: Callable[[str], Any]) -> bool:
        """Send ourselves to sleep, and ring from another connection; once more if the server was too busy
        to tell.
        """
        for _ in range(MAX_PROBES):
            began = time.monotonic()
            if self._probe_wakeup(probe, began):
                return True
            if time.monotonic() < began + PROBE_S + LATE_S:
                return False
        return False

    def _probe_wakeup(self, probe: Callable[[str], Any], began: float) -> bool:
        self._driver.send(self._listen(PROBE_S), GRACE_S)
        while time.monotonic() < began + 0.75 * PROBE_S:  # the first rings may come before it sleeps
            time.sleep(0.002)
            probe(self._schema.call("ring", literal(self.bell)))
            if self._driver.answered(0.02):
                break
        try:
            self._driver.receive(PROBE_S + GRACE_S)
        except Killed:
            return True
        return time.monotonic() < began + PROBE_S

    def _listen(self, seconds: float) -> str:
        tidy = len(self._read) >= MAX_READ_MAIL
        seen = ",".join(map(str, self._read))
        return self._schema.call("listen", f"{literal(self.bell)}, {seconds:.3f}, '{seen}', {int(tidy)}")

    def receive(self, timeout: float) -> list[str]:
        until = time.monotonic() + timeout
        while True:
            if self._closed:
                raise StoreUnavailable(f"{self._label}: the client is closed")
            asleep = time.monotonic()
            seconds = max(0.0, min(until - asleep, self._pause))
            messages = self._read_messages(seconds)
            if time.monotonic() - asleep < seconds:
                # The ring came before the server read the mail, or ended the call before it could read again.
                if not messages:
                    if messages is not None:
                        self._rung()
                    messages = self._read_messages(0.0)
                self._pause = self._longest
            elif messages:
                self._pause = MIN_MAIL_POLL_S  # it came while we slept, and nobody woke us
            else:
                self._pause = min(self._longest, self._pause * 1.5)
            if messages or time.monotonic() >= until:
                return messages or []

    def _rung(self) -> None:
        """A ring has arrived: if none did when it was tried, the server was too busy."""
        if self._rung_in_vain:
            self._longest, self._rung_in_vain = MAX_SLEEP_S, False

    def _read_messages(self, seconds: float) -> list[str] | None:
        """The mail that has come, after a sleep if there was none; None if the server did not read it."""
        tidied = len(self._read) >= MAX_READ_MAIL
        try:
            (mail,) = self._ask(self._listen(seconds), seconds + GRACE_S)
        except Killed:
            self._rung()
            return []
        except Again:
            return None
        if tidied:
            self._read.clear()
        return [self._note(number, message) for number, message in mail]

    def _note(self, number: int, message: bytes) -> str:
        self._read[number] = None
        return message.decode()

    def _ask(self, sql: str, timeout: float) -> Any:
        return drive(self._driver.query(sql, timeout), nested=True)

    def hang_up(self) -> None:
        self._closed = True
        self._driver.shut_down()

    def close(self) -> None:
        self._closed = True
        try:
            if self._read:
                self._ask(
                    self._schema.call(
                        "listen", f"{literal(self.bell)}, 0, '{','.join(map(str, self._read))}', 1"
                    ),
                    GRACE_S,
                )
        except (InterlockError, OSError):
            pass  # the sweep removes the mail
        self._driver.discard()

    def abandon(self) -> None:
        self._driver.abandon()
