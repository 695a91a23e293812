"""How much an uncontended claim and release cost beside the bare transactions they need, in one run.

    python tests/sqlite/bench_pair.py [directory]

`bare` is what any store must do: two `begin immediate ... commit` on the same schema, the first reading the
queue, drawing a token and inserting the row, the second deleting it and reading who is next. `minimal` leaves
out the token and both reads, and so is no lock; it shows what SQLite itself costs. Cases are interleaved, the
ratio is the median over rounds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sqlite import open_store
from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.file import connect
from interlock.backends.sqlite.statements import CLAIMS
from interlock.model import Claim, Granted

ROUNDS, PAIRS = 31, 200
WHO = '["worker-7",21133,"MainThread","billing/run.py:88"]'
COLUMNS = "resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, note, who"


def bare(directory: str) -> Callable[[], None]:
    clock = Clock()
    execute = connect(f"{directory}/bare.db", clock).execute
    execute("drop trigger claim_numbered")  # the bare program draws its token with a statement
    insert = f"insert into claim ({COLUMNS}) values (?, ?, ?, 1, 1, 1, 30.0, ?, ?, 0, '', '', ?)"

    def pair() -> None:
        execute("begin immediate")
        execute(CLAIMS["queue"], ("bare",)).fetchall()
        (last,) = execute("select last from meta").fetchone()
        token, now = max(last + 1, clock.micros()), clock.now()
        execute("update meta set last = ?", (token,))
        execute(insert, ("bare", token, "0123456789abcdef0123-1", now + 30, now, WHO))
        execute("commit")
        execute("begin immediate")
        execute("delete from claim where resource = ? and id = ?", ("bare", "0123456789abcdef0123-1"))
        execute(CLAIMS["queue"], ("bare",)).fetchall()
        execute("commit")

    return pair


def minimal(directory: str) -> Callable[[], None]:
    clock = Clock()
    execute = connect(f"{directory}/minimal.db", clock).execute
    execute("drop trigger claim_numbered")
    insert = f"insert into claim ({COLUMNS}) values (?, ?, ?, 1, 1, 1, 30.0, ?, ?, 0, '', '', ?)"

    def pair() -> None:
        now = clock.now()
        execute("begin immediate")
        execute(insert, ("bare", clock.micros(), "0123456789abcdef0123-1", now + 30, now, WHO))
        execute("commit")
        execute("begin immediate")
        execute("delete from claim where resource = ? and id = ?", ("bare", "0123456789abcdef0123-1"))
        execute("commit")

    return pair


def store(directory: str) -> Callable[[], None]:
    runtime = Threads()
    ours = open_store(f"{directory}/store.db", runtime, asynchronous=False)

    def pair() -> None:
        claim = Claim("bare", runtime.fresh_id(), 30.0, who=WHO)
        assert isinstance(drive(ours.claim(claim)), Granted)
        assert drive(ours.release("bare", claim.id))

    return pair


def timed(pair: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(PAIRS):
        pair()
    return (time.perf_counter() - began) / PAIRS


def main(directory: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as folder:
        cases = {"bare": bare(folder), "minimal": minimal(folder), "store": store(folder)}
        rounds: list[dict[str, float]] = []
        for pair in cases.values():
            timed(pair)
        for _ in range(ROUNDS):
            rounds.append({name: timed(pair) for name, pair in cases.items()})
    for name in cases:
        micros = 1e6 * median(found[name] for found in rounds)
        ratio = median(found[name] / found["bare"] for found in rounds)
        print(f"{name:8} {micros:6.1f} µs a pair   {ratio:4.2f} x bare")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
