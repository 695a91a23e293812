"""Looks host names up on a thread of its own, because the system's lookup has no deadline, and libpq would block an event loop with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

from interlock import native
from interlock.errors import Unreached


def start(look: Callable[[], None]) -> None:
    """Run on a new thread. Raises `Unreached` if none can be started."""
    try:
        native.Thread(target=look, name="interlock-resolver", daemon=True).start()
    except RuntimeError as error:
        raise Unreached(f"no thread could be started to look up a host name: {error}") from error


def addresses(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The addresses of each host, numeric; `Unreached` if one is unknown, or if it takes longer than `timeout` seconds."""
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
        raise Unreached(f"{', '.join(hosts)}: the name was not resolved within {timeout:.3g} s")
    if failure:
        raise Unreached(f"{', '.join(hosts)}: {failure[0]}")
    return found
