"""`watch`: a line for each change, as it happens; Ctrl-C ends it without a sound."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

import interlock
from interlock.cli.output import Output
from interlock.cli.watch import differences, persistent
from interlock.errors import StoreUnavailable
from interlock.model import Queue, Standing
from interlock.testing.servers.redis import running
from tests.cli.program import Program, Reader


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


@pytest.mark.server
@pytest.mark.parametrize("name", [["job"], []], ids=["one resource", "all resources"])
def test_survives_a_server_that_goes_and_comes_back(program: Program, name: list[str]) -> None:
    with running() as server:
        program.url = server.url()
        with interlock.connect(server.url()) as client, client.lock("job"):
            watch = Reader(program.start("watch", *name))
            watch.find("job", "holds")
            errors = Reader(watch.process, watch.process.stderr)
            server.kill()
            # Refused, or reset if the server went while the watch was connecting.
            errors.find(f"Redis at 127.0.0.1:{server.port}: Connection re", "trying again until it answers")
        server.start()
        errors.find("the store answers again")
        watch.find("job", "left")
        with interlock.connect(server.url()) as client, client.lock("job") as lease:
            watch.find("job", "holds", f"token {lease.token}")
        assert watch.interrupt() == 0
        assert len(errors.lines) == 2  # one line for each change, however long it lasts


def test_an_outage_is_told_once_however_often_the_store_is_asked_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interlock.cli.watch.RETRY_PAUSE_S", 0.0)
    answers = iter([Queue("x", 0, ()), None, None, None, Queue("x", 1, (standing("a", True),))])

    def look() -> Iterator[Queue]:
        for queue in answers:
            if queue is None:
                raise StoreUnavailable("away")
            yield queue

    err = io.StringIO()
    queues = persistent(look, Output(io.StringIO(), err, json=False))
    assert [len(next(queues).standings) for _ in range(2)] == [0, 1]
    assert err.getvalue().splitlines() == [
        "interlock: away; trying again until it answers",
        "interlock: the store answers again",
    ]


def test_a_server_that_was_never_reached_ends_it_with_69(program: Program) -> None:
    told = program.call("--url", "redis://127.0.0.1:1", "watch", "job")
    assert told.returncode == 69
    assert told.stderr.count("\n") == 1


def test_tells_a_lease_that_lingers_from_one_that_is_held(program: Program) -> None:
    program.make_store()
    watch = Reader(program.start("watch", "job"))
    watch.find("job", "idle")
    assert program.call("run", "--min-hold", "60s", "job", "--", "true").returncode == 0
    assert "free in " in watch.find("job", "lingers")
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
