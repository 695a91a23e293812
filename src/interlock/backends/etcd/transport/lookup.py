"""Looks host names up on a thread of their own, because the system's lookup has no deadline."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from interlock._support import native

_running: dict[tuple[str, int], _Lookup] = {}


class _Lookup:
    """One lookup, shared by all who need the name. Its thread may outlive those who wait for it."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)
        self.found: list[Any] = []
        self.error: OSError | None = None
        self.thread = native.Thread(target=self._run, name="interlock-lookup", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.found = socket.getaddrinfo(*self._name, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self.error = OSError(str(error))


def addresses(host: str, port: int, timeout: float) -> list[Any]:
    """What `getaddrinfo` finds; `TimeoutError` if it takes longer."""
    if native.green("socket") or not _named(host):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    lookup = _running.get((host, port))
    if lookup is None or not lookup.thread.is_alive():
        lookup = _running[host, port] = _Lookup(host, port)
    lookup.thread.join(timeout)
    if lookup.thread.is_alive():
        raise TimeoutError("its name cannot be looked up in time")
    _running.pop((host, port), None)
    if lookup.error is not None:
        raise lookup.error
    return lookup.found


def _named(host: str) -> bool:
    """Whether the host is a name that must be looked up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return False
        except OSError:
            pass
    return host != "localhost"


async def on_thread(call: Callable[[], Any], timeout: float) -> Any:
    """Run a blocking call on a thread of its own, beside an event loop, and return or raise what it does."""
    import asyncio  # here, not above: most programs do without

    loop = asyncio.get_running_loop()
    over: asyncio.Future[Any] = loop.create_future()

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
    return await asyncio.wait_for(over, timeout)
