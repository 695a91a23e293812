"""The worker processes, from the director's side: started, listened to, killed, paused, and all ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import interlock
from interlock._support import clock
from interlock.lab.demo.pace import Pace
from interlock.lab.demo.report import Report

START = "import sys; from interlock.lab.demo.worker import main; main(sys.argv[1:])"
CAN_PAUSE = hasattr(signal, "SIGSTOP")


class Member:
    """One worker process."""

    def __init__(self, name: str, argv: list[str], errors: Path) -> None:
        self.name = name
        self.errors = errors
        self.fate = ""  # what the director did to it
        source = str(Path(interlock.__file__).parents[1])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        with errors.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, name, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, "PYTHONPATH": path},
                text=True,
                start_new_session=True,  # Ctrl-C is for the director, who ends everybody in good order
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stop it where it stands, and return when it does."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def dismiss(self) -> None:
        """Tell it to finish its round and end."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.close()
        except OSError:
            pass  # it is gone already


class Crew:
    """All workers, and what they report."""

    def __init__(self, folder: Path, url: str, ledger: str, pace: Pace) -> None:
        self._argv = [url, ledger, str(pace.ttl), str(pace.think), str(pace.printing)]
        self._folder = folder
        self._heard: SimpleQueue[Report] = SimpleQueue()
        self.members: dict[str, Member] = {}

    def start(self, count: int) -> None:
        for number in range(1, count + 1):
            name = f"worker {number}"
            member = Member(name, self._argv, self._folder / f"{name}.err")
            self.members[name] = member
            threading.Thread(target=self._listen, args=(member,), daemon=True).start()

    def _listen(self, member: Member) -> None:
        assert member.process.stdout is not None
        with member.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # one that was killed while speaking leaves half a sentence
                    self._heard.put(Report.parse(line))

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
            f"{member.name}: {member.errors.read_text().strip() or f'exit {member.process.returncode}'}"
            for member in self.members.values()
            if member.fate != "killed" and member.process.poll() not in (None, 0)
        ]

    def dismiss(self, limit: float) -> bool:
        """Let everybody finish; whether all ended within `limit` seconds."""
        until = clock.now() + limit
        for member in self.members.values():
            member.dismiss()
        for member in self.members.values():
            try:
                member.process.wait(max(0.01, until - clock.now()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def end(self) -> None:
        """End everybody at once, whatever they are doing."""
        for member in self.members.values():
            if member.alive():
                member.process.kill()
        for member in self.members.values():
            member.process.wait()
            member.dismiss()
