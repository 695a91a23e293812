"""A client of a scenario from the director's side: started, heard, stopped at a point, frozen, killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from interlock.lab.child_process import ChildProcess
from interlock.testing.lag import stretched
from interlock.testing.patience import PATIENCE


class WorkerFailed(AssertionError):
    """A client ended with an error that is no part of the scenario."""


class WorkerProcess(ChildProcess):
    """One client. Every line that it says goes to `hear`; points where it stops are kept for `reach`."""

    def __init__(
        self,
        order: dict[str, Any],
        hear: Callable[[str, dict[str, Any]], None],
        launcher: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._tell = hear
        self._points: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        self._killed = False
        super().__init__(
            order["name"],
            "interlock.lab.worker",
            json.dumps(order),
            launcher=launcher,
            environment=environment,
            errors=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _hear(self, line: str) -> None:
        said = json.loads(line) if line else {"call": "at", "attempt": ""}
        if said["call"] == "at":
            self._points.put(said["attempt"])
        else:
            self._tell(self.name, said)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors += self._process.stderr.readlines()

    def reach(self, point: str, patience: float = PATIENCE) -> None:
        """Return when it has stopped at this point."""
        try:
            reached = self._points.get(timeout=patience)
        except queue.Empty:
            raise WorkerFailed(f"client {self.name} did not reach {point!r} in {patience:g} s") from None
        if reached != point:
            raise WorkerFailed(
                f"client {self.name} is at {reached or 'its end'}, not at {point!r}{self._why()}"
            )

    def go(self) -> None:
        """Let it go on from the point where it stopped."""
        self.say("go")

    def kill(self) -> None:
        self._killed = True
        super().kill()

    def interrupt(self) -> None:
        """Send it Ctrl-C."""
        self._killed = True
        os.kill(self.pid, signal.SIGINT)

    def finish(self, patience: float | None = None) -> bool:
        """Wait for its end; whether it has ended in time. An error of its own is raised here."""
        try:
            self._process.wait(stretched(20.0) if patience is None else patience)
        except subprocess.TimeoutExpired:
            return False
        self._listener.join(PATIENCE)
        if self._process.returncode and not self._killed:
            raise WorkerFailed(f"client {self.name} ended with {self._process.returncode}{self._why()}")
        return True

    def _why(self) -> str:
        if self.ended:
            self._reader.join(PATIENCE)
        told = "".join(self._errors[-12:]).strip()
        return f":\n{told}" if told else ""

    def close(self) -> None:
        if not self.ended:
            super().kill()
        self._reader.join(PATIENCE)
        super().close()
