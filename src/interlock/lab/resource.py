"""The resource that a lock protects: counters that clients read and write, with a log of their own.

What was accepted is judged from this log alone, never from what clients say. With `checks`, it refuses a
token that is lower than one it has seen: that is a guard. Clients reach it over a Unix socket, so a client
that is stopped or killed in the middle of a call disturbs nobody else.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from interlock.errors import StaleToken
from interlock.testing.journal import Journal


class Log(Protocol):
    """Where the resource writes down what it accepted and refused."""

    def add(self, call: str, kind: Any, **rest: Any) -> Any: ...


class Counter(NamedTuple):
    """A number, the highest token that has read or written it, and how often it was written."""

    value: int = 0
    mark: int = 0
    writes: int = 0


class Counters:
    """The counters. A read counts as well: otherwise a late write could fall between a read and its write."""

    def __init__(self, log: Log, *, checks: bool = True) -> None:
        self._log, self._checks = log, checks
        self._all: dict[str, Counter] = {}
        self._mutex = threading.Lock()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._mutex:
            if question["do"] == "count":
                return {name: counter.writes for name, counter in self._all.items()}
            name, token = question["resource"], question.get("token", 0)
            counter = self._all.get(name, Counter())
            if question["do"] == "visit":
                self._all[name] = counter._replace(writes=counter.writes + 1)
                return {}
            stale = self._checks and token < counter.mark
            written = question["do"] == "write"
            if written:
                rest = {key: question[key] for key in question if key != "do"}
                self._log.add("accept", "fail" if stale else "ok", **rest)
            if not stale:
                value = question["value"] if written else counter.value
                self._all[name] = Counter(value, max(token, counter.mark), counter.writes + written)
            return {"stale": stale, "value": counter.value, "mark": counter.mark}

    def writes(self, resource: str) -> int:
        """How often this counter was written."""
        with self._mutex:
            return self._all.get(resource, Counter()).writes


class ResourceClient:
    """A client of the counters; one connection a call, which costs little on a socket of this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, resource: str, token: int) -> int:
        """The number; `StaleToken` when a higher token was here."""
        return int(self._checked({"do": "read", "resource": resource, "token": token})["value"])

    def write(self, resource: str, token: int, value: int, **rest: Any) -> None:
        """Set the number; `StaleToken` when a higher token was here. `rest` goes into the log."""
        self._checked({"do": "write", "resource": resource, "token": token, "value": value, **rest})

    def visit(self, resource: str) -> None:
        """Say that somebody was here who has no number to write: `counts` counts that, too."""
        self._ask({"do": "visit", "resource": resource})

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


class ResourceServer(socketserver.ThreadingUnixStreamServer):
    """Serves counters on a Unix socket; `start` does so in a thread, `serve_forever` in this one."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, path: Path, counters: Counters) -> None:
        super().__init__(str(path), _Answer)
        self.path, self.counters = str(path), counters

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, ResourceServer)
        try:
            answer = self.server.counters.answer(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            pass  # the client was killed: whether its write counts is in the log


def main(path: str, log: str) -> None:
    """Serve counters that check tokens, in a process of their own, until it is ended."""
    with ResourceServer(Path(path), Counters(Journal(Path(log), "guard"))) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
