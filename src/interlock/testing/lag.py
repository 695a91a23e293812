"""How late this machine runs programs: for tests about time that must tell the truth on a busy machine too.

    with at_most(0.3 + 0.25):
        lock.acquire(timeout=0.3)

"Never later than 250 ms, plus scheduling" is a promise of interlock; the scheduling is the machine's. A wider
bound would no longer check the promise, and a bound without the subtraction fails wherever other programs run
beside the test.

    ttl = stretched(0.3)    # for a claim that must stand a few calls later, and is waited for in the end
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

TICK_S = 0.005  # seconds that the clockwork sleeps
USUAL_LAG_S = 0.001  # seconds by which every system is late
MAX_STRETCH = 6.0  # times as long as on a quiet machine: what needs more would end no test


class Lag:
    """Measures, between `with` and its end, the time by which the machine delayed the calling thread and the
    servers it asks.

    The thread's delay is measured in two ways, and the larger counts: by how much a thread that only sleeps
    was woken too late (this sees a machine that stands still, and other threads that are kept waiting), and
    how long the calling thread was ready to run while others ran (this sees a machine that is shared). A call
    waits for its servers as well, so to this is added how long the programs that this process has started
    were ready to run and were not run: of each, the thread that waited longest.
    """

    def __init__(self) -> None:
        self._late = 0.0
        self._ticked = 0.0
        self._thread = 0
        self._waited = 0.0
        self._servers: dict[int, dict[int, float]] = {}
        self._measured: float | None = None
        self._over = threading.Event()
        self._clockwork = threading.Thread(target=self._tick, name="lag", daemon=True)

    @property
    def seconds(self) -> float:
        """The delay so far; after the end of the `with`, the delay within it."""
        if self._measured is not None:
            return self._measured
        late = self._late + max(0.0, time.monotonic() - self._ticked - TICK_S)
        return max(late, _waited(os.getpid(), self._thread) - self._waited) + self._servers_late()

    def _servers_late(self) -> float:
        return sum(
            max(waited - self._servers.get(pid, {}).get(thread, 0.0) for thread, waited in threads.items())
            for pid, threads in _programs().items()
            if threads
        )

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            now = time.monotonic()
            self._late += max(0.0, now - self._ticked - TICK_S - USUAL_LAG_S)
            self._ticked = now

    def __enter__(self) -> Lag:
        self._servers = _programs()
        self._thread = threading.get_native_id()
        self._waited = _waited(os.getpid(), self._thread)
        self._ticked = time.monotonic()
        self._clockwork.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._measured = self.seconds
        self._over.set()
        self._clockwork.join()


def _waited(pid: int, thread: int) -> float:
    """Seconds that a thread has been ready to run and was not run; 0 where no system tells, or if it has
    ended.
    """
    try:
        words = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
    except OSError:
        return 0.0
    return int(words[1]) / 1e9 if len(words) == 3 else 0.0


def _programs() -> dict[int, dict[int, float]]:
    """For each program that this process or one of its children has started: how long each of its threads
    has waited to be run.
    """
    found: dict[int, dict[int, float]] = {}
    unseen = [os.getpid()]
    while unseen:
        pid = unseen.pop()
        try:
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:  # it has ended, or this system has no such files
            continue
        found[pid] = {thread: _waited(pid, thread) for thread in threads}
        for thread in threads:
            with suppress(OSError):
                unseen += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    del found[os.getpid()]
    return found


@contextmanager
def at_most(seconds: float, otherwise: str = "it took too long") -> Iterator[Lag]:
    """Fail if the block takes longer than this, not counting the machine's own lag."""
    with Lag() as lag:
        began = time.monotonic()
        yield lag
        took = time.monotonic() - began
    assert took - lag.seconds <= seconds, (
        f"{otherwise}: {took:.3f} s, of which the machine was late by {lag.seconds:.3f} s; {seconds:g} s "
        "were promised"
    )


def stretched(seconds: float) -> float:
    """A duration that a test chooses for itself, such as a ttl that must outlast a few calls: longer on a
    busy machine.

    Ask once in a test, and use the answer throughout: it changes with the load.
    """
    crowd = max(0.0, _load() / (os.cpu_count() or 1) - 1)  # programs that wait for each processor
    return seconds * min(MAX_STRETCH, 1 + crowd / 2)


def _load() -> float:
    """How many programs want to run: over the last minute or at this moment, whichever is more."""
    try:
        words = Path("/proc/loadavg").read_text().split()
        return max(float(words[0]), float(words[3].partition("/")[0]))
    except OSError:
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
