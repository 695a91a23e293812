"""Connects by the client library on a separate thread, because it looks the host name up without a deadline.

The stores with wire code of their own look the name up apart: see `kit.resolver`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from interlock._support import native

_left: dict[str, ConnectionAttempt] = {}  # by server: attempts whose caller has given up


class ConnectionAttempt:
    """One connection that a thread is making; its caller may give up."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._mutex = threading.Lock()
        self._done = self._abandoned = False
        self._made: Any = None
        self._error: BaseException | None = None
        self._thread = native.Thread(target=self._run, name="interlock-connect", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:
            self._error = error
        with self._mutex:
            self._done = True
            unwanted = self._abandoned and self._error is None
        if unwanted:
            self._made.disconnect()

    def over(self, timeout: float) -> bool:
        """Whether it ends within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self, timeout: float) -> Any:
        """The connection; `TimeoutError` if it takes longer.

        After an interruption the result is thrown away.
        """
        try:
            self._thread.join(timeout)
        finally:
            with self._mutex:
                self._abandoned = not self._done
        if self._abandoned:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._made


def made(label: str, make: Callable[[float], Any], timeout: float) -> Any:
    """The connection that `make` makes in the seconds it is given; `TimeoutError` if these are not enough.

    While an abandoned attempt is under way no other begins. Otherwise each retry would leave a thread behind.
    """
    until = time.monotonic() + timeout
    earlier = _left.get(label)
    if earlier is not None and not earlier.over(timeout):
        raise TimeoutError
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    attempt = ConnectionAttempt(lambda: make(left))
    try:
        connection = attempt.result(left)
    except TimeoutError:
        _left[label] = attempt
        raise
    if earlier is not None:
        _left.pop(label, None)
    return connection
