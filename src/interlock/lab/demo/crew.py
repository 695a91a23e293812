"""The worker processes, from the director's side: started, listened to, killed, paused, and all ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from interlock._support import clock
from interlock.lab.child_process import ChildProcess
from interlock.lab.demo.pace import Pace
from interlock.lab.demo.report import Report

CAN_PAUSE = hasattr(signal, "SIGSTOP")


class Member(ChildProcess):
    """One worker process."""

    def __init__(self, name: str, words: list[str], errors: Path, heard: Callable[[Report], None]) -> None:
        self.errors = errors
        self.fate = ""  # what the director did to it
        self._heard = heard
        with errors.open("w") as file:
            super().__init__(name, "interlock.lab.demo.worker", name, *words, errors=file)

    def _hear(self, line: str) -> None:
        if line:
            self._heard(Report.parse(line))

    @property
    def code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll()

    def wait(self, limit: float) -> bool:
        """Wait for its end; whether it has ended in time."""
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            return False
        return True


class Crew:
    """All workers, and what they report."""

    def __init__(self, folder: Path, url: str, ledger: str, pace: Pace) -> None:
        self._words = [url, ledger, str(pace.ttl), str(pace.think), str(pace.printing)]
        self._folder = folder
        self._heard: SimpleQueue[Report] = SimpleQueue()
        self.members: dict[str, Member] = {}

    def start(self, count: int) -> None:
        for number in range(1, count + 1):
            name = f"worker {number}"
            errors = self._folder / f"{name}.err"
            self.members[name] = Member(name, self._words, errors, self._heard.put)

    def hear(self, timeout: float) -> Report | None:
        """The next report, or None when none came in time."""
        try:
            return self._heard.get(timeout=max(0.0, timeout))
        except Empty:
            return None

    def named(self, pid: int) -> str:
        """The worker with this pid."""
        return next((m.name for m in self.members.values() if m.pid == pid), f"pid {pid}")

    def failures(self) -> list[str]:
        """The errors of workers that ended by themselves."""
        return [
            f"{member.name}: {member.errors.read_text().strip() or f'exit {member.code}'}"
            for member in self.members.values()
            if member.fate != "killed" and member.code not in (None, 0)
        ]

    def dismiss(self, limit: float) -> bool:
        """Let everybody finish; whether all ended within `limit` seconds."""
        until = clock.now() + limit
        for member in self.members.values():
            member.hang_up()  # it finishes its round, and ends
        return all(member.wait(max(0.01, until - clock.now())) for member in self.members.values())

    def end(self) -> None:
        """End everybody at once, whatever they are doing."""
        for member in self.members.values():
            member.close()
