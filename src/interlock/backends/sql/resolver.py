"""Looks host names up on a thread of its own, because the system's lookup has no deadline, and libpq would
block an event loop with it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence

from interlock._support import native
from interlock._support.wording import duration
from interlock.errors import Unreached

_reached: dict[tuple[str, int], str] = {}  # by host and port, the address of the last connection


def start(look: Callable[[], None]) -> None:
    """Run on a new thread. Raises `Unreached` if none can be started."""
    try:
        native.Thread(target=look, name="interlock-resolver", daemon=True).start()
    except RuntimeError as error:
        raise Unreached(f"no thread could be started to look up a host name: {error}") from error


def addresses(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The addresses of each host, numeric; `Unreached` if one is unknown, or if it takes longer than
    `timeout` seconds.
    """
    try:
        return looked_up(hosts, timeout)
    except TimeoutError as error:
        raise Unreached(str(error)) from None
    except OSError as error:
        raise Unreached(f"{', '.join(hosts)}: {error}") from None


def looked_up(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The same with the errors of the system: OSError if one is unknown, and TimeoutError."""
    found: list[list[str]] = []
    failure: list[OSError] = []
    done = threading.Event()

    def look() -> None:
        try:
            for host in hosts:
                infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                found.append(list(dict.fromkeys(str(info[4][0]) for info in infos)))
        except (OSError, UnicodeError) as error:
            failure.append(error if isinstance(error, OSError) else OSError(str(error)))
        finally:
            done.set()

    start(look)
    if not done.wait(timeout):
        raise TimeoutError(f"{', '.join(hosts)}: the name was not resolved within {duration(timeout)}")
    if failure:
        raise failure[0]
    return found


def dial(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to the first address of a host that can be reached; each has an equal share of the time.
    OSError if none can be.

    The one that was reached last is tried first: a silent one before it would cost every connection its
    share.
    """
    until = time.monotonic() + timeout
    (known,) = looked_up([host], timeout)
    known.sort(key=lambda address: address != _reached.get((host, port)))
    for tried, address in enumerate(known, 1):
        share = (until - time.monotonic()) / (len(known) + 1 - tried)
        try:
            made = socket.create_connection((address, port), max(0.001, share))
            _reached[host, port] = address
            return made
        except OSError:
            if tried == len(known):
                raise
    raise OSError(f"{host} has no address")
