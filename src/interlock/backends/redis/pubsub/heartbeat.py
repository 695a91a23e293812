"""Finds out whether the server of a subscription still lives: while nobody is admitted, it sends nothing
by itself.
"""

from __future__ import annotations

import time


class Heartbeat:
    """Tells when to ping a silent server, and when to give it up."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._since = time.monotonic()  # when it last sent something, or was pinged
        self._asked = False

    def ping_due(self, heard: bool, now: float) -> bool:
        """Whether to send a PING now; EOFError if one was sent and nothing came back in the same time
        again.
        """
        if heard:
            self._since, self._asked = now, False
        if now - self._since < self._every:  # the reader may have been woken for something else
            return False
        if self._asked:
            raise EOFError("no sign of life")
        self._since, self._asked = now, True
        return True
