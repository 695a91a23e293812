"""The events that a wait hears, of the nodes that it watches.

A waiter watches its folder, too. The node of a claim that lingers takes the place of the claim's own node,
ahead of those who wait already; whoever makes such a node writes to the folder in the same step, before it
removes its own. So a waiter never takes the end of a claim for its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock._core.runtime import Signal
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.requests import Request


class Bell:
    """A watcher of several nodes. kazoo calls it on the connection's thread, in the order of the server's
    events.
    """

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.paths: set[str] = set()  # that were ever watched
        self.armed: set[str] = set()  # that are watched, and nothing was heard of them
        self.deleted: set[str] = set()
        self.changed: set[str] = set()
        self.broken = False  # the connection has gone, and all watches with it
        self.over = False  # nobody waits any more

    def __bool__(self) -> bool:
        """False once its wait is over: kazoo asks before it keeps a watcher, also when the answer to a
        request comes late.
        """
        return not self.over

    def __call__(self, event: Any) -> None:
        if event.type == "DELETED":
            self.deleted.add(event.path)
        elif event.type == "NONE":
            self.broken = True
        else:
            self.changed.add(event.path)
        self.armed.discard(event.path)
        self.signal.set()

    def silence(self) -> None:
        """Nothing is heard from here on, because the session is being closed: end the wait."""
        self.broken = True
        self.signal.set()

    def arm(self, paths: Iterable[str]) -> dict[str, Request]:
        """The requests that begin to watch these nodes, unless they are watched or gone.

        Before they are sent: an event may come before their caller goes on.
        """
        wanted = {path: requests.get_data(path, self) for path in paths}
        for path in self.armed | self.deleted:
            wanted.pop(path, None)
        self.armed.update(wanted)
        self.paths.update(wanted)
        self.changed.difference_update(wanted)
        return wanted
