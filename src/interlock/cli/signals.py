"""Signals to `interlock run`: in the queue they end it, later they are the command's."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from interlock.cli.warden import RELAYED_SIGNALS

ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that end this process by default.

Signals that were ignored when it started (nohup) stay ignored.
"""


class Interrupted(KeyboardInterrupt):
    """A signal came while we waited. A kind of Ctrl-C: whoever is interrupted by it leaves nothing behind."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Interrupts the run while it waits, relays signals while the command runs, and ignores them
    afterwards.
    """

    def __init__(self) -> None:
        self._act: Callable[[int], None] = self.ignore

    def interrupt(self) -> None:
        """The first signal from now on raises `Interrupted` in the main thread; further ones are dropped."""
        self._act = self._interrupt
        for name in ENDING:
            if hasattr(signal, name):
                self._handle(getattr(signal, name))

    def relay_to(self, relay: Callable[[int], None]) -> None:
        """Every signal from now on is the command's; a stop is ours as well, or the shell would wait on."""

        def act(number: int) -> None:
            relay(number)
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

        self._act = act
        for number in RELAYED_SIGNALS:
            self._handle(number)

    def stop(self) -> None:
        """Drop every signal from now on: we are giving back what we hold, and that is bounded."""
        self._act = self.ignore

    def ignore(self, number: int) -> None:
        """Nothing is done."""

    def _interrupt(self, number: int) -> None:
        self._act = self.ignore
        raise Interrupted(number)

    def _handle(self, number: int) -> None:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, self._handler)

    def _handler(self, number: int, frame: FrameType | None) -> None:
        self._act(number)
