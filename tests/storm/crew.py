"""The worker processes as their director sees them: told, stopped, resumed, killed, replaced."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

from interlock.testing.servers.clock import clocked
from interlock.testing.servers.process import start_program
from tests.storm.guard import ENVIRONMENT
from tests.storm.journal import Journal

PATIENCE = 90.0  # seconds a step may take before the worker counts as hung


class Hand:
    """One worker process."""

    def __init__(
        self, name: str, kind: str, place: Any, ttl: float, folder: Path, guard: str, ahead: float
    ) -> None:
        self.name = name
        environment = clocked(ENVIRONMENT, folder / f"{name}.clock", ahead) if ahead else ENVIRONMENT
        settings = {"name": name, "kind": kind, "place": place, "ttl": ttl, "folder": str(folder)}
        self._process = start_program(
            [sys.executable, "-m", "tests.storm.worker", json.dumps({**settings, "guard": guard})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def send(self, what: str, **order: Any) -> None:
        """Tell it what to do, and do not wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **order}) + "\n")
        self._process.stdin.flush()

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        line = self._answers.get(timeout=patience)
        assert line, f"worker {self.name} has ended with {self._process.wait(PATIENCE)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, what: str, **order: Any) -> dict[str, Any]:
        self.send(what, **order)
        return self.answer()

    def acquire(self, resource: str, timeout: float = 0.0) -> int | None:
        """The token, or None."""
        token: int | None = self.tell("acquire", resource=resource, timeout=timeout)["token"]
        return token

    def count(self, resource: str) -> bool:
        """Read and write in one go; whether the write was accepted."""
        value = self.tell("read", resource=resource)["value"]
        return value is not None and self.write(resource, value + 1)

    def write(self, resource: str, value: int) -> bool:
        return bool(self.tell("write", resource=resource, value=value)["accepted"])

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)
        if number == signal.SIGSTOP:
            os.waitpid(self._process.pid, os.WUNTRACED)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """In good order; the worker writes down what it could not clean up."""
        assert "over" in self.tell("stop"), f"{self.name} did not stop"
        assert self._process.wait(PATIENCE) == 0
        self.close()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        self._process.wait()


class Crew:
    """All workers of a run; kills are written into the director's journal, in the victim's name."""

    def __init__(self, folder: Path, guard: str, journal: Journal, ttl: float) -> None:
        self.folder, self.ttl = folder, ttl
        self._guard, self._journal = guard, journal
        self._names = count(1)
        self.resources: list[str] = []  # what they work on, for faults that must hit one of those
        self.hands: list[Hand] = []
        self._made: dict[str, tuple[str, Any, float]] = {}

    def hire(self, kind: str, place: Any, ahead: float = 0.0) -> Hand:
        """A worker that is ready: `kind` is sync, async or a naive lock's name, `place` a URL or ports.

        Its wall clock is `ahead` of the machine's by so many seconds.
        """
        hand = Hand(f"p{next(self._names)}", kind, place, self.ttl, self.folder, self._guard, ahead)
        self.hands.append(hand)
        self._made[hand.name] = (kind, place, ahead)
        assert hand.answer()["ready"] == hand.name
        return hand

    def kill(self, hand: Hand) -> None:
        """As `kill -9`. The record stands after the deed: until then it may have acted."""
        hand.kill()
        self._journal.add("fault", "invoke", process=hand.name, error="kill")
        self.hands.remove(hand)

    def replace(self, hand: Hand) -> Hand:
        self.kill(hand)
        return self.hire(*self._made[hand.name])

    def close(self) -> None:
        for hand in self.hands:
            hand.close()
