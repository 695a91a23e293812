"""Looks host names up with a deadline, and connects to the address that answered last: libpq and PyMySQL
would wait for the system's lookup without one, and block an event loop with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from interlock._support.wording import duration
from interlock.backends.kit import resolver
from interlock.errors import Unreached

_reached: dict[tuple[str, int], str] = {}  # by host and port, the address of the last connection


def addresses(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The addresses of each host, numeric; `Unreached` if one is unknown, or if it takes longer than
    `timeout` seconds.
    """
    with _named(hosts):
        return looked_up(hosts, timeout)


async def addresses_async(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The same for a task."""
    with _named(hosts):
        until, found = time.monotonic() + timeout, list[list[str]]()
        for host in hosts:
            try:
                lookup = await resolver.looked_up(host, None, until - time.monotonic())
            except TimeoutError:
                raise _late(hosts, timeout) from None
            found.append(_numeric(lookup.addresses()))
        return found


@contextmanager
def _named(hosts: Sequence[str]) -> Iterator[None]:
    """Turn the errors of the system into `Unreached`."""
    try:
        yield
    except Unreached:  # no thread could be started
        raise
    except TimeoutError as error:
        raise Unreached(str(error)) from None
    except OSError as error:
        raise Unreached(f"{', '.join(hosts)}: {error}") from None


def looked_up(hosts: Sequence[str], timeout: float) -> list[list[str]]:
    """The same with the errors of the system: OSError if one is unknown, and TimeoutError."""
    until, found = time.monotonic() + timeout, list[list[str]]()
    for host in hosts:
        try:
            found.append(_numeric(resolver.addresses(host, None, until - time.monotonic())))
        except TimeoutError:
            raise _late(hosts, timeout) from None
    return found


def _numeric(infos: Sequence[resolver.AddressInfo]) -> list[str]:
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def _late(hosts: Sequence[str], timeout: float) -> TimeoutError:
    return TimeoutError(f"{', '.join(hosts)}: the name was not resolved within {duration(timeout)}")


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
