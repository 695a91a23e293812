"""TLS contexts, made once for all connections with the same settings.

The library would read all certificate authorities of the machine for each connection. That takes 25 ms, which
on an event loop delays every task, and the first lock on five servers makes ten connections within half a
second. A context is used until TLS fails, because the files may have been replaced by then.
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

# Seconds for which files are not read again: five nodes with unknown certificates need one read, not five.
FILES_KEPT_S = 1.0

# By settings: the object that makes the context, the same one each time, and when it was read.
_read: dict[tuple[object, ...], tuple[Any, float]] = {}
_reading = threading.Lock()


class SharedContext:
    """The TLS context of all connections, sync and async, that have the same settings."""

    def __init__(self, package: str, settings: dict[str, Any]) -> None:
        told = {name: value for name, value in settings.items() if name.startswith("ssl")}
        self._key: tuple[object, ...] | None = (package, *((name, told[name]) for name in sorted(told)))
        self._package = package
        try:
            hash(self._key)
        except TypeError:
            self._key = None
        if any("ocsp" in name and value for name, value in told.items()):
            self._key = None  # the library checks each certificate with OCSP itself

    def apply(self, label: str, connection: Any, settings: dict[str, Any]) -> None:
        """Have a connection that is about to be made use the shared context."""
        if self._key is None:
            return
        blocking = not hasattr(connection, "ssl_context")
        if blocking and bool(settings.get("ssl_certfile")) != bool(settings.get("ssl_keyfile")):
            return  # key and certificate are in one file, which asyncio connections of the library ignore
        kept = _read.get(self._key)
        if kept is None:
            maker = self._maker(label, settings) if blocking else connection.ssl_context
            if maker is None:
                return
            kept = _read.setdefault(self._key, (maker, time.monotonic()))
        if blocking:
            connection._wrap_socket_with_ssl = partial(_wrapped, kept[0], connection.host)
        else:
            connection.ssl_context = kept[0]

    def _maker(self, label: str, settings: dict[str, Any]) -> Any:
        """Makes the context.

        Only the library's asyncio connections keep theirs, and they may know fewer settings.
        """
        kind = import_module(f"{self._package}.asyncio.connection").SSLConnection
        try:
            known = accepted_options(label, kind, settings)
        except StoreUnfit:
            return None
        return kind(**{name: value for name, value in known.items() if name.startswith("ssl")}).ssl_context

    def invalidate(self, error: OSError) -> None:
        """TLS failed. The files may have been replaced, so the next connection reads them again."""
        kept = None if self._key is None else _read.get(self._key)
        if (
            kept is not None
            and isinstance(error, ssl.SSLError)
            and time.monotonic() - kept[1] >= FILES_KEPT_S
        ):
            _read.pop(self._key or (), None)


def _wrapped(maker: Any, host: str, sock: Any) -> ssl.SSLSocket:
    # The nodes of a quorum are connected to on one thread each: the first reads the files for all of them.
    first = _reading.acquire(timeout=FILES_KEPT_S)
    try:
        context = maker.get()
    finally:
        if first:  # otherwise it was held when this process was forked, and nobody will ever release it
            _reading.release()
    made: ssl.SSLSocket = context.wrap_socket(sock, server_hostname=host)
    return made


def accepted_options(label: str, kind: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that this class of connections accepts; those of a sync client may not fit async ones,
    or vice versa.
    """
    known = known_options(kind)
    strange = [name for name in settings if name.startswith("ssl") and name not in known]
    for name in strange:
        if settings[name]:  # to leave it out would make a connection less safe than its owner wants
            raise StoreUnfit(
                f"{label}: {name} is not for connections of {kind.__module__}; leave it out, or use the "
                "other face"
            )
    return {name: value for name, value in settings.items() if name not in strange}


def known_options(kind: type[Any]) -> set[str]:
    """The names of all settings that this class of connections has."""
    makers = [vars(parent)["__init__"] for parent in kind.__mro__[:-1] if "__init__" in vars(parent)]
    return {name for maker in makers for name in inspect.signature(maker).parameters}
