"""Looks host names up on a separate thread, because the system's lookup has no deadline.

While the resolver is down, a lookup takes half a minute by default. A client that reconnects to one node of a
quorum would miss its renewals on all the others. An event loop has a few threads for lookups, but abandoned
ones would keep them from everybody else and delay the end of the loop.
"""

from __future__ import annotations

import socket
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


def made(place: str, make: Callable[[float], Any], timeout: float) -> Any:
    """The connection that `make` makes in the seconds it is given; `TimeoutError` if these are not enough.

    While an abandoned attempt is under way no other begins. Otherwise each retry would leave a thread behind.
    """
    until = time.monotonic() + timeout
    earlier = _left.get(place)
    if earlier is not None and not earlier.over(timeout):
        raise TimeoutError
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    attempt = ConnectionAttempt(lambda: make(left))
    try:
        connection = attempt.result(left)
    except TimeoutError:
        _left[place] = attempt
        raise
    if earlier is not None:
        _left.pop(place, None)
    return connection


class HostLookup:
    """One lookup of a name, shared by all tasks that need it. The client library reports its outcome."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._mutex = threading.Lock()
        self._calls: list[Callable[[], object]] | None = []
        self._thread = native.Thread(target=self._run, name="interlock-lookup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            socket.getaddrinfo(self._host, None)
        except (OSError, UnicodeError):
            pass
        with self._mutex:
            calls, self._calls = self._calls or [], None
        for call in calls:
            try:
                call()
            except RuntimeError:
                pass  # the caller's loop was closed

    def alive(self) -> bool:
        return self._thread.is_alive()

    def then(self, call: Callable[[], object]) -> None:
        """Run `call` when the lookup has ended."""
        with self._mutex:
            if self._calls is not None:
                self._calls.append(call)
                return
        call()


_lookups: dict[str, HostLookup] = {}


async def looked_up(host: str, timeout: float) -> None:
    """Return once the system has answered for the host; `TimeoutError` if it takes longer.

    Tasks share one lookup.
    """
    import asyncio

    lookup = _lookups.get(host)
    if lookup is None or not lookup.alive():
        lookup = _lookups[host] = HostLookup(host)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    lookup.then(lambda: loop.call_soon_threadsafe(over.set))
    await asyncio.wait_for(over.wait(), timeout)


async def on_thread(call: Callable[[], object], timeout: float) -> None:
    """Run a blocking call on a thread of its own, and raise what it raises; `TimeoutError` if it takes
    longer.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not over.done():
            over.set_result(None) if error is None else over.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            call()
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            pass  # the loop was closed

    native.Thread(target=run, name="interlock-connect", daemon=True).start()
    await asyncio.wait_for(over, timeout)


def named(host: object) -> bool:
    """Whether the host is a name that must be looked up."""
    if not isinstance(host, str) or host in ("", "localhost"):
        return False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return False
        except (OSError, ValueError):
            pass
    return True
