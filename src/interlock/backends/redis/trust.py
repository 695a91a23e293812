"""What TLS needs beside the address, read once: the library would read all authorities of the machine for each connection.

That takes 25 ms, on an event loop at the cost of all its tasks; and the first lock on five servers makes ten
connections, within half a second. What was read serves until TLS fails: then it may have been replaced.
"""

from __future__ import annotations

import inspect
import ssl
from functools import partial
from typing import Any

from interlock.errors import StoreUnfit

_read: dict[tuple[object, ...], Any] = {}  # a context, or what makes one for connections of asyncio


class Trust:
    """What connections with the same settings share."""

    def __init__(self, package: str, module: str, settings: dict[str, Any]) -> None:
        told = {name: value for name, value in settings.items() if name.startswith("ssl")}
        key = (package, module, *sorted(told.items(), key=lambda item: item[0]))
        self._key: tuple[object, ...] | None = key
        try:
            hash(key)
        except TypeError:
            self._key = None
        if any("ocsp" in name and value for name, value in told.items()):
            self._key = None  # the library asks about each certificate, in its own way

    def lend(self, connection: Any) -> None:
        """Give a connection that is about to be made what an earlier one has read."""
        if self._key is None:
            return
        if hasattr(connection, "ssl_context"):
            # Of asyncio: it reads when it first connects, for all who share it.
            connection.ssl_context = _read.setdefault(self._key, connection.ssl_context)
        elif (context := _read.get(self._key)) is not None:
            connection._wrap_socket_with_ssl = partial(context.wrap_socket, server_hostname=connection.host)

    def keep(self, connection: Any) -> None:
        """Remember what a blocking connection has read."""
        if self._key is not None and isinstance(connection._sock, ssl.SSLSocket):
            _read.setdefault(self._key, connection._sock.context)

    def doubt(self, error: OSError) -> None:
        """TLS failed: files may have been replaced, so the next connection reads them again."""
        if self._key is not None and isinstance(error, ssl.SSLError):
            _read.pop(self._key, None)


def taken(place: str, kind: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
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
