"""Lets a thread that waits alone read the doorbell itself: a ring then wakes it directly, and not the
notifier's thread first.
"""

from __future__ import annotations

import os
import select
from typing import Any

from interlock._core.runtime import Signal
from interlock._support.waiting import only_waits
from interlock.backends.kit.wake_pipe import WakePipe
from interlock.backends.sql.sqlite.doorbell import MAX_DATAGRAM_BYTES, Doorbell


class BellReader:
    """The doorbell in the hands of one thread, during one wait.

    What others do for its waiter reaches it by a pipe.
    """

    def __init__(self, signal: Signal, named: tuple[str, ...], doorbell: Doorbell, pipe: WakePipe) -> None:
        """`signal` and the topics `named` are the waiter's."""
        self._signal = signal  # not the waiter, which has our `wake`: it must be gone when its thread is
        # The ring that it waits for, made before: one that looks like it need not be taken apart.
        self._topics, self._ring = [*named], doorbell.key + "\n".join(named).encode()
        self._doorbell = doorbell
        self._number = doorbell.fileno()  # nobody closes it during the wait
        self._pipe = pipe
        self._awaiting = False
        self._all, self._pipe_only = select.poll(), select.poll()
        for poll in (self._all, self._pipe_only):
            poll.register(pipe, select.POLLIN)
        self._all.register(doorbell, select.POLLIN)

    def wake(self) -> None:
        """End the wait, after the signal was set. Any thread may call, and a signal handler of our own."""
        if self._awaiting:  # otherwise the thread looks at its signal next
            self._pipe.wake()

    def receive(self, timeout: float, most: int) -> list[str]:
        """As `Doorbell.receive`."""
        found = self.wait(self._all, timeout)
        if not found:
            return []
        if found[0][0] != self._number:
            self._pipe.clear()
            return []
        if most > 1:
            return self._doorbell.take(most)
        try:
            ring = os.read(self._number, MAX_DATAGRAM_BYTES * 2)
        except BlockingIOError:  # another has taken it
            return []
        return self._topics if ring == self._ring else self._doorbell.topics(ring)

    def pause(self, timeout: float) -> None:
        """As `Doorbell.pause`."""
        if self.wait(self._pipe_only, timeout):
            self._pipe.clear()

    @only_waits
    def wait(self, poll: Any, timeout: float) -> list[tuple[int, int]]:
        """Poll unless the signal is set."""
        self._awaiting = True  # first: if the signal is set after our look at it, the pipe wakes us
        try:
            found: list[tuple[int, int]] = (
                [] if self._signal.is_set() else poll.poll(max(0.0, timeout) * 1000)
            )
            return found
        finally:
            self._awaiting = False
