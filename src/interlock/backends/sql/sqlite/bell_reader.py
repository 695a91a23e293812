"""Lets a thread that waits alone read the doorbell itself: a ring then wakes it directly, and not the notifier's thread first."""

from __future__ import annotations

import select
from typing import Any

from interlock.backends.kit.wake_pipe import WakePipe
from interlock.backends.sql.sqlite.doorbell import Doorbell
from interlock.ports import Signal


class BellReader:
    """The doorbell in the hands of one thread, during one wait. What others do for its waiter reaches it by a pipe."""

    def __init__(self, signal: Signal, doorbell: Doorbell, pipe: WakePipe) -> None:
        self._signal = signal  # not the waiter, which has our `wake`: it must be gone when its thread is
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
        if found and found[0][0] == self._number:
            return self._doorbell.take(most)
        if found:
            self._pipe.clear()
        return []

    def pause(self, timeout: float) -> None:
        """As `Doorbell.pause`."""
        if self.wait(self._pipe_only, timeout):
            self._pipe.clear()

    def wait(self, poll: Any, timeout: float) -> list[tuple[int, int]]:
        """Poll unless the signal is set. `shutdown` recognises a waiting thread by the name of this function."""
        self._awaiting = True  # first: if the signal is set after our look at it, the pipe wakes us
        try:
            found: list[tuple[int, int]] = (
                [] if self._signal.is_set() else poll.poll(max(0.0, timeout) * 1000)
            )
            return found
        finally:
            self._awaiting = False
