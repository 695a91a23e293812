"""The guarded resource: counters in a process of their own, which check tokens and keep their own log.

A process, not a file under a lock: a client that is stopped or killed in the middle of a write must not stop or
break the resource for all others. What is accepted is judged from this log alone.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from interlock.errors import StaleToken
from interlock.testing.servers.process import start_program
from tests.storm.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


class Counter(NamedTuple):
    """A number, the highest token that has read or written it, and how often it was written."""

    value: int = 0
    mark: int = 0
    writes: int = 0


class Counters:
    """What the process keeps. A read counts as well: else a late write could fall between a read and its write."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._all: dict[str, Counter] = {}
        self._guard = threading.Lock()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._guard:
            if question["do"] == "count":
                return {name: counter.writes for name, counter in self._all.items()}
            name, token = question["resource"], question["token"]
            counter = self._all.get(name, Counter())
            stale = token < counter.mark
            if question["do"] == "write":
                self._log(question, stale)
            if not stale:
                written = question["do"] == "write"
                value = question["value"] if written else counter.value
                self._all[name] = Counter(value, token, counter.writes + written)
            return {"stale": stale, "value": counter.value, "mark": counter.mark}

    def _log(self, question: dict[str, Any], stale: bool) -> None:
        rest = {key: question[key] for key in ("resource", "token", "value", "attempt")}
        self._journal.add("accept", "fail" if stale else "ok", **rest)


class Guarded:
    """A client of the counters; one connection a call, which costs little on a socket of this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, resource: str, token: int) -> int:
        """The number; `StaleToken` when a higher token was here."""
        return int(self._checked({"do": "read", "resource": resource, "token": token})["value"])

    def write(self, resource: str, token: int, value: int, attempt: str) -> None:
        """Set the number; `StaleToken` when a higher token was here."""
        question = {"do": "write", "resource": resource, "token": token, "value": value, "attempt": attempt}
        self._checked(question)

    def counts(self) -> dict[str, int]:
        """How often each number was written."""
        return self._ask({"do": "count"})

    def _checked(self, question: dict[str, Any]) -> dict[str, Any]:
        answer = self._ask(question)
        if answer["stale"]:
            raise StaleToken(question["resource"], question["token"], answer["mark"])
        return answer

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.settimeout(30.0)
            sock.connect(self._path)
            with sock.makefile("rw", encoding="utf-8") as lines:
                lines.write(json.dumps(question) + "\n")
                lines.flush()
                answer: dict[str, Any] = json.loads(lines.readline())
                return answer


class GuardProcess:
    """The process, as whoever starts it sees it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "guard.socket")
        self._process = start_program(
            [sys.executable, "-m", "tests.storm.guard", self.path, str(folder / "guard.jsonl")],
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the guarded resource did not start"
        self.counters = Guarded(self.path)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 128
    daemon_threads = True
    counters: Counters


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        try:
            answer = self.server.counters.answer(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            pass  # the client was killed: whether its write counts is in the log


def main(path: str, log: str) -> None:
    with _Server(path, _Answer) as server:
        server.counters = Counters(Journal(Path(log), "guard"))
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
