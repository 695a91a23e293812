"""One listener for all clients of this process that reach the same tables in the same way.

Each of them would otherwise keep a connection that does nothing but listen. What one client does to the claim
of another then reaches it within the process, without the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from interlock._support import native
from interlock.backends.sql.dialect import Subscription
from interlock.backends.sql.listener import Listener

_mutex = native.mutex()
_shared: dict[Hashable, tuple[Listener, int]] = {}  # with the number of clients that use it


class ListenerShare:
    """The part of one client in a listener.

    `key` says which clients share one; with None, this client has one of its own.
    """

    def __init__(self, key: Hashable | None, connect: Callable[[], Subscription | None]) -> None:
        self._key = key
        self._left = False
        if key is None:
            self.listener = Listener(connect)
            return
        with _mutex:
            self.listener, users = _shared.get(key) or (Listener(connect), 0)
            _shared[key] = self.listener, users + 1

    def leave(self) -> None:
        """End this client's part; the last one to leave closes the listener. May be called twice."""
        with _mutex:
            if self._left:
                return
            self._left = last = True
            if self._key is not None:
                listener, users = _shared[self._key]
                if users > 1:
                    _shared[self._key] = listener, users - 1
                else:
                    del _shared[self._key]
                last = users == 1
        if last:
            self.listener.close()
        self.listener.deliver("")  # waiters of this client ask again, and learn that it was closed


def _after_fork() -> None:
    global _mutex
    _mutex = native.mutex()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
