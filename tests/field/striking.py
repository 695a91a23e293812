"""A program that is struck by Ctrl-C at random moments of taking, holding and giving back, many times.

    python striking.py URL TIMES SEED

Prints one line: how often it was struck, how many claims stood afterwards that its client did not know
of (nobody would ever give those back), and how many it knew of.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from types import FrameType

import interlock

SOON = 10.0  # seconds; a claim that was left behind stands for 60

armed = False  # a signal may come late: it must not strike who only looks


def strike(number: int, frame: FrameType | None) -> None:
    global armed
    if armed:
        armed = False  # once: who is struck twice has been told twice
        raise KeyboardInterrupt


class Program:
    def __init__(self, url: str) -> None:
        self.client = interlock.connect(url, ttl=60)
        self.see = interlock.connect(url, ttl=60)
        self.lock = self.client.lock("lock")
        self.rlock = self.client.rlock("rlock")
        self.semaphore = self.client.semaphore("semaphore", 1000)
        self.see.lock("busy").acquire()

    def with_lock(self) -> None:
        with self.client.lock("lock", timeout=1):
            pass

    def by_hand(self) -> None:
        lease = self.client.lock("lock").acquire(timeout=1)
        if lease:
            lease.release()

    def again(self) -> None:
        with self.rlock, self.rlock:
            pass

    def permits(self) -> None:
        with self.semaphore:
            pass

    def in_vain(self) -> None:
        self.client.lock("busy").acquire(timeout=0.002)

    def several(self) -> None:
        with self.client.multilock(["a", "b"], timeout=1):
            pass

    def unknown(self) -> set[str]:
        """Claims that stand, and that no client of this process gives back. The keeper may be about to: then they go soon."""
        found, end = self._unknown(), time.monotonic() + SOON
        while found and time.monotonic() < end:
            time.sleep(0.005)
            found &= self._unknown()
        return found

    def _unknown(self) -> set[str]:
        known = {lease._claim.id for client in (self.client, self.see) for lease in list(client._core.leases)}
        debts = {getattr(kept, "id", "") for kept in self.client._core.keeper.kept()}
        standing = {s.id for name in self.see.scan() for s in self.see.inspect(name).standings}
        return standing - known - debts

    def tidy(self) -> int:
        """Give back what is still in our hands, as the end of the process would."""
        held = list(self.client._core.leases)
        for lease in held:
            with suppress(interlock.NotHeld):  # the keeper was quicker: the statement that had it is over
                lease.release()  # type: ignore[attr-defined]
        self.client._core.entries.clear()
        return len(held)


def main() -> None:
    url, times, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGALRM, strike)
    chance, program = random.Random(seed), Program(url)
    ways = [
        program.with_lock,
        program.by_hand,
        program.again,
        program.permits,
        program.in_vain,
        program.several,
    ]
    global armed
    struck = held = 0
    unknown: set[str] = set()
    for _ in range(times):
        way = chance.choice(ways)
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 0.0004))
            way()
            armed = False  # here, not below: a strike between the two would end the program
        except (KeyboardInterrupt, RuntimeError):  # threading.Event.wait turns some of them into RuntimeError
            struck += 1
        except interlock.StoreUnavailable:  # it struck a client library, which has lost its connection
            struck += 1
        unknown |= program.unknown()
        held += program.tidy()
    program.client.close()
    print(struck, len(unknown), held, len(list(program.see.scan())) - 1, flush=True)
    # Python would end with the exit code of Ctrl-C if one of them, caught long ago, had struck while a module was imported
    # whose source calls exec with a text.
    os._exit(0)


if __name__ == "__main__":
    main()
