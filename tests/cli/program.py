"""The command `interlock` as a user starts it, and how to wait for what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import interlock
from interlock.cli import json_output, target_store
from tests.house.source import SRC
from tests.patience import PATIENCE
from tests.patience import until as until


def boot_time() -> float:
    """Now, on the clock of INTERLOCK_DEADLINE."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def state(pid: int) -> list[str]:
    """What /proc says of a process, from its state on; nothing when it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether the process runs (or is stopped); a zombie does not."""
    return "".join(state(pid)[:1]) not in ("", "Z", "X")


def stopped(pid: int) -> bool:
    return state(pid)[:1] == ["T"]


def parent(pid: int) -> int:
    return int(state(pid)[1])


def written(path: Path, lines: int = 1) -> list[str]:
    """The lines of a file that a command writes, once there are so many."""
    found = until(lambda: path.exists() and len(path.read_text().splitlines()) >= lines and path.read_text())
    return str(found).splitlines()


class Program:
    """Starts `interlock` on one lock file, and ends what a failed test has left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "locks.db"
        self.url = f"sqlite:///{self.file}"
        self._started: list[subprocess.Popen[str]] = []

    def environment(self) -> dict[str, str]:
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("INTERLOCK_", "COLUMNS"))
        }
        return {**clean, "INTERLOCK_URL": self.url, "PYTHONPATH": str(SRC)}

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "interlock", *args]

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """A process that goes on while the test does other things; its output can be read at the end."""
        return self.start_program(self.argv(*args), **options)

    def start_program(self, argv: list[str], **options: Any) -> subprocess.Popen[str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        settings: dict[str, Any] = {**streams, "env": self.environment(), "cwd": self.folder, **options}
        process: subprocess.Popen[str] = subprocess.Popen(argv, text=True, **settings)
        self._started.append(process)
        return process

    def call(self, *args: str, input: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            self.argv(*args),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**self.environment(), **env},
            cwd=self.folder,
        )

    def make_store(self) -> None:
        """Make the lock file: commands that only look do not."""
        with interlock.connect(self.url):
            pass

    def queue(self, name: str) -> dict[str, Any]:
        """What `inspect --json` would say, read here: a test that waits for a fact must not start a program for each look."""
        with target_store.open_existing(self.url) as client:
            return json_output.of_queue(client.inspect(name))

    def inspected(self, name: str) -> dict[str, Any]:
        """What `inspect --json` says."""
        found: dict[str, Any] = json.loads(self.call("inspect", "--json", name).stdout)
        return found

    def hold(self, name: str, *options: str) -> subprocess.Popen[str]:
        """A run that holds the resource until it is ended."""
        mark = self.folder / f"held-{len(self._started)}"
        process = self.start("run", *options, name, "--", "sh", "-c", f"echo $$ > '{mark}'; exec sleep 60")
        written(mark)
        return process

    def finish(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


class Reader:
    """Reads what a process writes, line by line, as it comes: its output, or another of its streams."""

    def __init__(self, process: subprocess.Popen[str], stream: IO[str] | None = None) -> None:
        self.process = process
        self.lines: list[str] = []
        threading.Thread(target=self._read, args=(stream or process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        self.lines.extend(iter(stream.readline, ""))

    def find(self, *words: str) -> str:
        return until(lambda: next((line for line in self.lines if all(word in line for word in words)), ""))

    def documents(self, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.lines) >= count)
        return [json.loads(line) for line in self.lines[:count]]

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a process that ends by itself."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err
