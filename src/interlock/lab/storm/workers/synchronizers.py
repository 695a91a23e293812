"""interlock's synchronizers as a worker of a storm uses them: which one, the name of a resource says."""

from __future__ import annotations

import os
import threading
from random import Random
from typing import Any

import interlock
from interlock import aio
from interlock.events import Event
from interlock.lab.storm.resources import CAPACITY, synchronizer_of
from interlock.lab.storm.workers.lease_lives import witness
from interlock.testing.conformance.face import got
from interlock.testing.journal import Journal


def _ignore(event: Event) -> None:
    """What happens stands in the history; nobody reads a log beside it."""


class Reentrant:
    """A lease of a reentrant lock, which is released as often as it was taken."""

    def __init__(self, lock: Any, lease: Any) -> None:
        self.release = lock.release
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)


class Interlock:
    """interlock over any URL, in one of its two faces."""

    def __init__(self, url: str, ttl: float, journal: Journal, *, asynchronous: bool = False) -> None:
        self._before = len(connections())  # an event loop has some of its own
        connect: Any = aio.connect if asynchronous else interlock.connect
        self._client: Any = connect(url, ttl=ttl, listener=_ignore)
        self._rlocks: dict[str, Any] = {}
        witness(self._client, journal, asynchronous=asynchronous)

    async def take(self, resource: str, timeout: float, chance: Random) -> Any:
        """A lease, or None. Of a read-write lock every third is a reader's; a semaphore gives 1 or 2."""
        match synchronizer_of(resource):
            case "rwlock":
                lock = self._client.rwlock(resource)
                return await got(
                    (lock.read() if chance.random() < 0.3 else lock.write()).acquire(timeout=timeout)
                )
            case "semaphore":
                semaphore = self._client.semaphore(resource, capacity=CAPACITY)
                return await got(semaphore.acquire(timeout=timeout, permits=chance.choice((1, 1, 2)))) or None
            case "election":
                return await got(
                    self._client.election(resource).campaign(f"at-{os.getpid()}", timeout=timeout)
                )
            case "rlock":
                lock = self._rlocks.setdefault(resource, self._client.rlock(resource))
                lease = await got(lock.acquire(timeout=timeout))
                return None if lease is None else Reentrant(lock, lease)
            case _:
                return await got(self._client.lock(resource).acquire(timeout=timeout))

    def register(self, key: str) -> Any:
        """A register; its methods answer as those of the face."""
        return self._client.register(key)

    def close(self) -> Any:
        return self._client.close()

    def left(self) -> list[str]:
        """What is still there though the client was closed."""
        core = self._client._core
        found = [f"{lease!r} is in the client" for lease in core.leases]
        found += [f"the keeper keeps {kept!r}" for kept in core.keeper.kept()]
        found += [f"thread {t.name} runs" for t in threading.enumerate() if t.name.startswith("interlock")]
        return found + [f"connection {name} is open" for name in connections()[self._before :]]


def connections() -> list[str]:
    """Sockets of this process; a client that was closed has none."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.append(f"{number} ({target})")
    return found
