"""Real processes for tests: told what to do, stopped, resumed, killed, and never left behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


class Told(Exception):
    """The process met an error; `kind` is its type's name."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind


class Process:
    """One process with a client of its own."""

    def __init__(self, face: str, url: str, ttl: float = 30.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), face, url, str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def send(self, text: str) -> None:
        """Tell it what to do, and do not wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()

    def answer(self, patience: float = PATIENCE) -> Any:
        """Its answer to the oldest line not answered yet; raises `Told` for an error it met."""
        line = self._answers.get(timeout=patience)
        assert line, f"the process has ended with {self._process.wait(PATIENCE)}"
        said = json.loads(line)
        if "error" in said:
            raise Told(said["error"], said["text"])
        return said["ok"]

    def tell(self, text: str) -> Any:
        self.send(text)
        return self.answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """As by Ctrl-Z; returns once it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def end(self) -> int:
        """Let it end in good order; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
