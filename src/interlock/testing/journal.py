"""One process's part of the history: a line an event, on disk before the next step is taken.

Times are of the clock that leases are counted on, one for all processes of this machine. A process that is
killed leaves every line it has written.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from interlock._support import clock
from interlock.testing.history import Kind, Record

BEAT = 0.005  # seconds between two beats of a process
STALL = 0.02  # seconds without one after which the process counts as not having run


class Journal:
    """Writes records of one process. Usable from any thread."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, call: str, kind: Kind, at: float | None = None, **rest: Any) -> float:
        """Write one record; the time it bears."""
        time = clock.now() if at is None else at
        record = Record(time, rest.pop("process", self.process), call, kind, **rest)
        os.write(self._file, (record.pack() + "\n").encode())  # one write: lines of threads do not mix
        return time

    def close(self) -> None:
        os.close(self._file)


class Pulse(threading.Thread):
    """Writes down when this process did not run, whoever stopped it: a signal, or a busy machine.

    The judges take that time off what a call took: a machine that is late is no lock's fault.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(daemon=True, name="pulse")
        self._journal = journal
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        last = clock.now()
        while not self._stopping.wait(BEAT):
            now = clock.now()
            if now - last > STALL:
                self._journal.add("fault", "invoke", at=last, error="pause")
                self._journal.add("fault", "invoke", at=now, error="resume")
            last = now

    def stop(self) -> None:
        self._stopping.set()
        self.join()
