"""How fast the demo goes: slow enough to be read, or fast enough to be tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations in seconds."""

    ttl: float  # of every lease in the demo
    think: float  # between reading the ledger and writing it, under the lock
    printing: float  # under the semaphore
    rush: float  # how long the first act lasts
    read: float  # how long a sentence stands on the screen before the next thing happens
    frame: float  # between two pictures

    @property
    def longest_wait(self) -> float:
        """How long any expected thing may take before the demo says that it did not happen."""
        return 15.0 + 5 * self.ttl


WATCHED = Pace(ttl=2.0, think=0.22, printing=0.5, rush=5.0, read=2.0, frame=0.1)
FAST = Pace(ttl=0.8, think=0.08, printing=0.1, rush=0.8, read=0.1, frame=0.05)
