"""Connections to hosts that have a name are made on a thread of their own: the system's lookup knows no deadline.

While a resolver is down each lookup takes as long as it likes, half a minute by default. Whoever must reconnect to one
node of a quorum would miss the renewals on all others. Asyncio looks names up on threads anyhow.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

_left: dict[str, Attempt] = {}  # by place: attempts that nobody waits for any more


class Attempt:
    """One connection being made; who waits for it may leave."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._done = self._abandoned = False
        self._made: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="interlock-connect", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:
            self._error = error
        with self._guard:
            self._done = True
            unwanted = self._abandoned and self._error is None
        if unwanted:
            self._made.disconnect()

    def over(self, timeout: float) -> bool:
        """Whether it has come to an end by then."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self, timeout: float) -> Any:
        """What was made; `TimeoutError` if it takes longer. Whatever interrupts this, nobody else will ask."""
        try:
            self._thread.join(timeout)
        finally:
            with self._guard:
                self._abandoned = not self._done
        if self._abandoned:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._made


def made(place: str, make: Callable[[float], Any], timeout: float) -> Any:
    """The connection that `make` makes in the seconds it is given; `TimeoutError` if these are not enough.

    While one that nobody waits for is under way no other begins: they would pile up, one for each look at the node.
    """
    until = time.monotonic() + timeout
    earlier = _left.get(place)
    if earlier is not None and not earlier.over(timeout):
        raise TimeoutError
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    attempt = Attempt(lambda: make(left))
    try:
        connection = attempt.result(left)
    except TimeoutError:
        _left[place] = attempt
        raise
    if earlier is not None:
        _left.pop(place, None)
    return connection


def named(host: object) -> bool:
    """Whether the host must be looked up."""
    if not isinstance(host, str) or host in ("", "localhost"):
        return False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return False
        except (OSError, ValueError):
            pass
    return True
