"""What TLS needs beside the address, read once: the library would read all authorities of the machine for each connection.

That takes 25 ms, on an event loop at the cost of all its tasks; and the first lock on five servers makes ten
connections, within half a second. What was read serves until TLS fails: then files may have been replaced.
"""

from __future__ import annotations

import inspect
import ssl
import threading
import time
from functools import partial
from importlib import import_module
from typing import Any

from interlock.errors import StoreUnfit

FRESH = 1.0  # seconds for which nothing is read again: five nodes with strange certificates need one look, not five

_read: dict[
    tuple[object, ...], tuple[Any, float]
] = {}  # what makes a context, the same one each time; since when
_reading = threading.Lock()


class SharedContext:
    """What connections of both colours share that have the same settings."""

    def __init__(self, package: str, settings: dict[str, Any]) -> None:
        told = {name: value for name, value in settings.items() if name.startswith("ssl")}
        self._key: tuple[object, ...] | None = (package, *((name, told[name]) for name in sorted(told)))
        self._package = package
        try:
            hash(self._key)
        except TypeError:
            self._key = None
        if any("ocsp" in name and value for name, value in told.items()):
            self._key = None  # the library asks about each certificate, in its own way

    def apply(self, place: str, connection: Any, settings: dict[str, Any]) -> None:
        """Give a connection that is about to be made what an earlier one has read, or will."""
        if self._key is None:
            return
        blocking = not hasattr(connection, "ssl_context")
        if blocking and bool(settings.get("ssl_certfile")) != bool(settings.get("ssl_keyfile")):
            return  # both in one file: connections of asyncio would leave them out
        kept = _read.get(self._key)
        if kept is None:
            maker = self._maker(place, settings) if blocking else connection.ssl_context
            if maker is None:
                return
            kept = _read.setdefault(self._key, (maker, time.monotonic()))
        if blocking:
            connection._wrap_socket_with_ssl = partial(_wrapped, kept[0], connection.host)
        else:
            connection.ssl_context = kept[0]

    def _maker(self, place: str, settings: dict[str, Any]) -> Any:
        """The library keeps what it read with connections of asyncio only; these may know fewer settings."""
        kind = import_module(f"{self._package}.asyncio.connection").SSLConnection
        try:
            known = accepted_options(place, kind, settings)
        except StoreUnfit:
            return None
        return kind(**{name: value for name, value in known.items() if name.startswith("ssl")}).ssl_context

    def invalidate(self, error: OSError) -> None:
        """TLS failed: files may have been replaced, so another connection reads them again."""
        kept = None if self._key is None else _read.get(self._key)
        if kept is not None and isinstance(error, ssl.SSLError) and time.monotonic() - kept[1] >= FRESH:
            _read.pop(self._key or (), None)


def _wrapped(maker: Any, host: str, sock: Any) -> ssl.SSLSocket:
    first = _reading.acquire(
        timeout=FRESH
    )  # the nodes of a quorum are connected to on a thread each: one reads for all
    try:
        context = maker.get()
    finally:
        if first:  # not if it was locked when this process was forked: then nobody will ever release it
            _reading.release()
    made: ssl.SSLSocket = context.wrap_socket(sock, server_hostname=host)
    return made


def accepted_options(place: str, kind: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that this class of connections takes: those of a client of the other colour may say more."""
    known = _known(kind)
    strange = [name for name in settings if name.startswith("ssl") and name not in known]
    for name in strange:
        if settings[name]:  # left out, a connection would be less safe than its owner wants it
            raise StoreUnfit(
                f"{place}: {name} is not for connections of {kind.__module__}; leave it out, or use the other face"
            )
    return {name: value for name, value in settings.items() if name not in strange}


def _known(kind: type[Any]) -> set[str]:
    makers = [vars(parent)["__init__"] for parent in kind.__mro__[:-1] if "__init__" in vars(parent)]
    return {name for maker in makers for name in inspect.signature(maker).parameters}
