"""`watch`: a line for each change, as it happens; Ctrl-C ends it without a sound."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from typing import Any

import pytest

import interlock
from interlock.cli.watch import differences
from interlock.model import Queue, Standing
from tests.cli.program import Program, until


class Reader:
    """Reads lines of a process as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def find(self, *words: str) -> str:
        return until(lambda: next((line for line in self.lines if all(word in line for word in words)), ""))

    def documents(self, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.lines) >= count)
        return [json.loads(line) for line in self.lines[:count]]

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)


@pytest.mark.parametrize("name", [["job"], []], ids=["one resource", "all resources"])
def test_tells_who_comes_and_goes(program: Program, name: list[str]) -> None:
    with interlock.connect(program.url) as client:
        watch = Reader(program.start("watch", *name))
        if name:
            watch.find("job", "idle")
        with client.lock("job") as lease:
            watch.find("job", "holds", f"token {lease.token}")
            waiter = program.start("run", "job", "--", "sleep", "60")
            watch.find("job", "waits", f"pid {waiter.pid} ")
        watch.find("job", "left", f"token {lease.token}")
        watch.find("job", "holds", f"pid {waiter.pid} ")
        assert watch.interrupt() == 0
        assert watch.process.stderr is not None
        assert watch.process.stderr.read() == ""


@pytest.mark.parametrize("name", [["job"], []], ids=["one resource", "all resources"])
def test_json_is_a_document_a_line(program: Program, name: list[str]) -> None:
    with interlock.connect(program.url) as client, client.lock("job") as lease:
        watch = Reader(program.start("watch", "--json", *name))
        (first,) = watch.documents(1)
        assert first["resource"] == "job"
        assert [holder["token"] for holder in first["holders"]] == [lease.token]
        assert [change["change"] for change in first["changes"]] == ["holds"]
        assert first["at"] > 0
        lease.release()
        second = watch.documents(2)[1]
        assert second["kind"] == "idle"
        assert [(change["change"], change["token"]) for change in second["changes"]] == [
            ("left", lease.token)
        ]
        assert watch.interrupt() == 0


def standing(id: str, admitted: bool, note: str = "") -> Standing:
    return Standing(id, 1, 1, admitted, 0.0, 1.0, note, "")


def test_a_change_is_told_once_and_a_renewal_not_at_all() -> None:
    def told(before: Queue | None, *standings: Standing) -> list[tuple[str, str]]:
        return [(what, who.id) for what, who in differences(before, Queue("x", 1, standings))]

    a, b = standing("a", True), standing("b", False)
    assert told(None, a, b) == [("holds", "a"), ("waits", "b")]
    both = Queue("x", 1, (a, b))
    assert told(both, a, b) == []
    assert told(both, standing("b", True)) == [("left", "a"), ("holds", "b")]
    assert told(both, standing("a", True, "new"), b) == [("says", "a")]
    assert told(both) == [("left", "a"), ("left", "b")]
