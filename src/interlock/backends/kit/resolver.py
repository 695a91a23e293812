"""Looks host names up with a deadline, which the system's own lookup does not have.

While the resolver is down, a lookup takes half a minute by default. A client that reconnects to one node of
a quorum would miss its renewals on all the others. So each lookup runs on a thread of its own, which may
outlive those who wait for it; whoever needs the same name meanwhile shares it, or each retry would leave a
thread behind. An event loop has a few threads for lookups, but abandoned ones would keep them from
everybody else and delay the end of the loop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from interlock._support import native
from interlock.errors import Unreached

T = TypeVar("T")

AddressInfo = Any
"""One answer of `socket.getaddrinfo`."""

Find = Callable[..., list[AddressInfo]]

Name = tuple[str, "int | None", bool]
"""A host, a port, and whether a thread of the system looks it up, also in a program of greenlets."""

_lookups: dict[Name, Lookup] = {}  # that are under way


class Lookup:
    """One lookup of a name, shared by all who need it."""

    def __init__(self, name: Name, find: Find) -> None:
        self._name = name
        self._find = find
        self._process = os.getpid()
        self._mutex = native.mutex()
        self._calls: list[Callable[[], object]] | None = []
        self._found: list[AddressInfo] = []
        self._error: OSError | None = OSError("the lookup was interrupted")

    def run(self) -> None:
        try:
            self._found = self._find(*self._name[:2], type=socket.SOCK_STREAM)
            self._error = None
        except OSError as error:
            self._error = error
        except UnicodeError as error:
            self._error = OSError(str(error))

    def run_to_end(self) -> None:
        try:
            self.run()
        finally:
            self.end()

    def end(self) -> None:
        """Tell all who wait for it; called however its thread ends."""
        if _lookups.get(self._name) is self:
            _lookups.pop(self._name, None)
        with self._mutex:
            calls, self._calls = self._calls or [], None
        for call in calls:
            try:
                call()
            except RuntimeError:
                pass  # the caller's loop was closed

    @property
    def under_way(self) -> bool:
        """Whether its thread runs, in this process: a forked child has none of its parent's threads."""
        return self._calls is not None and self._process == os.getpid()

    def then(self, call: Callable[[], object]) -> None:
        """Run `call` when the lookup has ended."""
        with self._mutex:
            if self._calls is not None:
                self._calls.append(call)
                return
        call()

    def addresses(self) -> list[AddressInfo]:
        """The answer of the system; OSError if there is none."""
        if self._error is not None:
            raise self._error
        return self._found


def _lookup(host: str, port: int | None, system: Find | None = None) -> Lookup:
    """The lookup of a name that is under way, or a new one; `Unreached` if no thread can be started.

    With `system`, the system's own `getaddrinfo`, its thread is one of the system, too.
    """
    name = (host, port, system is not None)
    known = _lookups.get(name)
    if known is not None and known.under_way:
        return known
    lookup = _lookups[name] = Lookup(name, system or socket.getaddrinfo)
    try:
        if system is None:
            native.begin(lookup.run, lookup.end)
        else:
            native.original("start_new_thread")(lookup.run_to_end, ())
    except RuntimeError as error:
        lookup.end()
        raise Unreached(f"no thread could be started to look up a host name: {error}") from error
    return lookup


def addresses(host: str, port: int | None, timeout: float) -> list[AddressInfo]:
    """The answer of `getaddrinfo`; `TimeoutError` if it takes longer, OSError if there is no such name."""
    import threading  # as greenlets have it, where a library has put them in the place of threads

    lookup, over = _lookup(host, port), threading.Event()
    lookup.then(over.set)
    if not over.wait(timeout):
        raise TimeoutError("its name cannot be looked up in time")
    return lookup.addresses()


async def looked_up(host: str, port: int | None, timeout: float) -> Lookup:
    """The same for a task: the lookup once it has ended; `TimeoutError` if it takes longer."""
    import asyncio  # here, not above: most programs do without

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    lookup = _lookup(host, port)
    lookup.then(lambda: loop.call_soon_threadsafe(over.set))
    async with asyncio.timeout(timeout):  # not wait_for, which in Python 3.11 may forget a cancellation
        await over.wait()
    return lookup


def addresses_of_system(host: str, port: int, timeout: float, find: Find) -> list[AddressInfo]:
    """The same for a thread of the system in a program of greenlets, which must not wait for one of them.

    `find` is the system's own `getaddrinfo`, whatever a library has put in its place.
    """
    lookup, over = _lookup(host, port, find), native.original("allocate_lock")()
    over.acquire()
    lookup.then(over.release)
    if not over.acquire(timeout=max(0.0, timeout)):
        raise TimeoutError("its name cannot be looked up in time")
    return lookup.addresses()


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


async def on_thread(call: Callable[[], T], timeout: float) -> T:
    """Run a blocking call on a thread of its own, beside an event loop, and return or raise what it does;
    `TimeoutError` if it takes longer.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    over: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not over.done():
            over.set_result(result) if error is None else over.set_exception(error)

    def run() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            result = call()
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(settle, result, failed)
        except RuntimeError:
            pass  # the loop was closed

    native.Thread(target=run, name="interlock-connect", daemon=True).start()
    async with asyncio.timeout(timeout):
        return await over
