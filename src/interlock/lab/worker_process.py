"""A client of a scenario from the director's side: started, heard, stopped at a point, frozen, killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import interlock
from interlock.testing.lag import stretched
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.process import freeze, start_program, thaw


class WorkerFailed(AssertionError):
    """A client ended with an error that is no part of the scenario."""


class WorkerProcess:
    """One client. Every line that it says goes to `hear`; points where it stops are kept for `reach`."""

    def __init__(
        self,
        order: dict[str, Any],
        hear: Callable[[str, dict[str, Any]], None],
        launcher: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name: str = order["name"]
        self._hear = hear
        self._points: queue.Queue[str] = queue.Queue()
        source = str(Path(interlock.__file__).parents[1])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        argv = [*launcher, sys.executable, "-m", "interlock.lab.worker", json.dumps(order)]
        self._process = start_program(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            start_new_session=True,  # Ctrl-C is for the director, who ends everybody in good order
        )
        self._errors: list[str] = []
        self._killed = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                continue  # it was killed in the middle of a line
            said = json.loads(line)
            if said["call"] == "at":
                self._points.put(said["attempt"])
            else:
                self._hear(self.name, said)
        self._points.put("")  # it has ended

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors += self._process.stderr.readlines()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

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
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP), and return when it has stopped."""
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._killed = True
        self._process.kill()
        self._process.wait()
        self._listener.join(PATIENCE)

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
        """End it, whatever it does."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        self._listener.join(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
