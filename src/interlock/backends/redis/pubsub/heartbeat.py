"""Whether the server of a subscription still lives: while nobody is let in, it says nothing by itself."""

from __future__ import annotations

import time

PING = 5.0  # seconds of silence after which the server is asked for a sign of life


class Heartbeat:
    """Tells when to ask a silent server for a sign of life, and when to give it up."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._since = time.monotonic()  # it said something, or was asked to
        self._asked = False

    def ping_due(self, heard: bool, now: float) -> bool:
        """Whether it must be asked now; EOFError if it was asked, and said nothing in as long a time again."""
        if heard:
            self._since, self._asked = now, False
        if now - self._since < self._every:  # also if who read was woken for something else
            return False
        if self._asked:
            raise EOFError("no sign of life")
        self._since, self._asked = now, True
        return True
