"""The contract of `interlock.backends.sql.steps`, said in rows: every dialect must answer this script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock._core.drive import drive
from interlock.backends.sql import steps
from interlock.backends.sql.server_store import ServerStore
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.steps import Rows

Run = Callable[..., Rows]
TTL, PLACE = 30.0, 20.0


def of(store: SqliteStore | ServerStore) -> Run:
    """Runs steps as a blocking store does."""

    def run(step: str, *args: Any) -> Rows:
        return [tuple(row) for row in drive(store._run(step, args, store.now() + 5.0))]

    return run


def check(run: Run) -> None:
    """All eleven steps, in one story on a resource and a register of its own."""
    check_claims(run)
    check_evictions(run)
    check_registers(run)
    assert run(steps.WATCH, "q", "r", "nobody's bell", 60.0) == []
    ((gone, resource, _),) = run(steps.SWEEP, "", 0, 256)
    assert (gone, resource) == (0, None)


def ask(run: Run, id: str, *, queued: bool = True, capacity: int = 1) -> Any:
    (row,) = run(steps.CLAIM, "r", id, TTL, 1, capacity, queued, PLACE, 1, "", "note " + id, "who " + id)
    assert len(row) == 13
    assert not row[steps.MESSAGES[steps.CLAIM]]
    return row


def renewal(id: str, note: str | None = None, token: int = 0, *, waiting: bool = False) -> tuple[Any, ...]:
    return "r", id, TTL, note, None, token, waiting


def check_claims(run: Run) -> None:
    assert (
        run(steps.QUEUE, "r", None) == run(steps.NAMES, "", "", 10) == run(steps.FIND, "r", "a", "", 0) == []
    )
    answer, token, *_ = ask(run, "a")
    assert answer == "g"
    assert ask(run, "a")[:2] == ("g", token)
    answer, place, ahead, retry, _, _, *holder = ask(run, "b")
    assert (answer, ahead) == ("b", 1)
    assert place > token
    assert 0 < retry <= TTL
    id, its_token, permits, age, lapses_in, note, who = holder
    assert (id, its_token, permits, note, who) == ("a", token, 1, "note a", "who a")
    assert 0 <= age < TTL
    assert 0 < lapses_in <= TTL
    assert ask(run, "b")[:2] == ("b", place)
    assert ask(run, "c", queued=False)[:3] == ("b", None, 2)
    assert ask(run, "d", capacity=2)[:3] == ("m", None, 1)
    queue = run(steps.QUEUE, "r", None)
    assert [(*row[:4], *row[6:]) for row in queue] == [
        (token, "a", 1, 1, "note a", "who a"),
        (place, "b", 1, 1, "note b", "who b"),
    ]
    assert all(0 <= row[4] < TTL and 0 < row[5] <= TTL for row in queue)
    assert [row[1] for row in run(steps.QUEUE, "r", 1)] == ["a"]
    assert run(steps.NAMES, "r", "", 10) == [("r",)]
    assert run(steps.NAMES, "r", "r", 10) == []
    assert standing(run, "b") == (steps.WAITS, False, place)
    renewed = run(steps.RENEW, [renewal("a", "new"), renewal("nobody")], "")
    assert [row[:2] for row in renewed] == [("r", None), ("x", None)]
    assert run(steps.QUEUE, "r", 1)[0][6] == "new"
    assert stood(run, "a")
    assert standing(run, "b") == (steps.IN, True, place)
    assert not stood(run, "a")


def standing(run: Run, id: str) -> Any:
    ((state, rung, token, lapses_in),) = run(steps.FIND, "r", id, "", 0)
    assert 0 < lapses_in <= TTL
    return state, bool(rung), token


def stood(run: Run, id: str) -> bool:
    ((found, messages),) = run(steps.RELEASE, "r", id, 0.0, "", False, 0)
    assert not messages
    return bool(found)


def check_evictions(run: Run) -> None:
    """`b` holds now, and is evicted while `e` waits."""
    place = ask(run, "e")[1]
    (row,) = run(steps.EVICT, "r", None, "why", steps.REMEMBERED_S, "first")
    assert (row[1], bool(row[8])) == ("b", True)
    assert len(row) == 9
    assert run(steps.RENEW, [renewal("b")], "")[0][:2] == ("e", "why")
    assert (ask(run, "b")[0], ask(run, "b")[4]) == ("e", "why")
    assert run(steps.FIND, "r", "b", "", 0) == []
    assert standing(run, "e") == (steps.IN, True, place)
    assert run(steps.EVICT, "r", "nobody", "why", steps.REMEMBERED_S, "second") == []
    assert stood(run, "e")


def check_registers(run: Run) -> None:
    def write(version: int, value: str | None, id: str) -> Rows:
        return run(steps.WRITE, "n", version, value, id, "", steps.REMEMBERED_S)

    assert run(steps.READ, "n") == write(7, "v", "w0") == []
    ((value, first),) = write(0, "v", "w1")
    assert value == "v"
    assert write(0, "v", "w1") == run(steps.READ, "n") == [("v", first)]
    assert write(0, "w", "w2") == []
    ((value, second),) = write(first, None, "w3")
    assert value is None
    assert second > first
    assert run(steps.READ, "n") == [(None, second)]
