"""What a wait hears: events of the nodes that it watches."""

from __future__ import annotations

from typing import Any

from interlock.ports import Signal


class Bell:
    """A watcher of several nodes. kazoo calls it on the connection's thread, in the order of the server's events."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.deleted: set[str] = set()
        self.broken = False  # the connection has gone, and all watches with it
        self.over = False  # nobody waits any more

    def __bool__(self) -> bool:
        """False once its wait is over: kazoo asks before it keeps a watcher, also when the answer to a request comes late."""
        return not self.over

    def __call__(self, event: Any) -> None:
        if event.type == "DELETED":
            self.deleted.add(event.path)
        elif event.type == "NONE":
            self.broken = True
        self.signal.set()
