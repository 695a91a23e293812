"""A thread that waits for a lock."""

from __future__ import annotations

import threading

import interlock
from tests.patience import PATIENCE
from tests.patience import until as until


class Waiter(threading.Thread):
    """Waits for a lock on a thread; `lease` once it is in."""

    def __init__(self, client: interlock.Client, name: str, timeout: float = PATIENCE) -> None:
        super().__init__(daemon=True)
        self._lock = client.lock(name, timeout=timeout)
        self.lease: interlock.Lease | None = None
        self.start()
        until(lambda: client.inspect(name).waiters)

    def run(self) -> None:
        self.lease = self._lock.acquire()
