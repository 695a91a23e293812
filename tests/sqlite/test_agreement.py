"""Whatever is asked of it, the lock file answers as the reference in memory does."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine, Iterator
from contextlib import closing, suppress
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from interlock._core.admission import admitted, retry_after
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.memory import MemoryStore, Space
from interlock.backends.sql.sqlite import open_store
from interlock.backends.sql.sqlite.tables.row import EVICTED, Row
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.steps import IN
from interlock.errors import SettingsMismatch
from interlock.model import Busy, Claim, Granted, Queue, Renewal, Standing
from interlock.store import Store
from tests.sqlite.common import ManualClock

# An id is one wish: what it asks for never changes, as `Claim.id` promises.
WISHES = {
    **{f"mutex-{n}": ("mutex", 1, 1) for n in range(4)},
    **{f"other-{n}": ("mutex", 1, 2) for n in range(1)},
    **{f"sem-{n}": ("semaphore", 1 + n % 3, 3) for n in range(6)},
    **{f"read-{n}": ("rw", 1, 10) for n in range(3)},
    **{f"write-{n}": ("rw", 10, 10) for n in range(3)},
}
RESOURCES = ("mutex", "semaphore", "rw", "nobody")
ORDERS = (
    ("claim",) * 8 + ("release",) * 3 + ("renew", "evict", "look", "scan", "wall", "write") + ("pass",) * 4
)


def script(seed: int, length: int = 60) -> Iterator[Any]:
    """Steps by chance: now a crowd on one resource, now a few on each."""
    chance = Random(seed)
    crowd = chance.choice([("mutex",), ("mutex", "other"), ("sem",), ("read", "write"), tuple(WISHES)])
    ids = [id for id in WISHES if id.startswith(crowd)]

    def seconds() -> float:
        return chance.choice([0.5, 1.0, 2.0, 4.0])

    for _ in range(length):
        order, id = chance.choice(ORDERS), chance.choice(ids)
        match order:
            case "claim":
                yield order, id, seconds(), seconds(), chance.random() < 0.8
            case "release":
                yield order, id, chance.choice([0.0, 0.0, 1.0])
            case "renew":
                some = chance.sample(ids, chance.randint(0, len(ids)))
                yield order, [(id, seconds(), chance.choice([None, None, 1])) for id in some]
            case "evict":
                yield order, id, chance.random() < 0.5
            case "look":
                yield order, chance.choice(RESOURCES), chance.choice([None, 1, 2])
            case "scan":
                yield order, chance.choice(["", "m", "mutex", "s", "x"]), chance.choice(["", "mutex", "rw"])
            case "pass":
                yield order, chance.choice([0.05, 0.1, 0.5, 1.5])
            case "wall":
                yield order, chance.choice([-5_000_000, 7, 5_000_000])
            case _:
                yield order, chance.choice("xy"), chance.random() < 0.7, chance.choice(["v", None])


def asked(store: Store, step: Any, versions: dict[str, int], held: set[str]) -> Coroutine[Any, Any, Any]:
    """The call of a step; those of `held` were told that they hold, and are renewed as a holder's."""
    match step:
        case ("claim", id, ttl, place_ttl, queued):
            resource, permits, capacity = WISHES[id]
            return store.claim(Claim(resource, id, ttl, permits, capacity, queued, place_ttl, "note", "who"))
        case ("release", id, linger):
            return store.release(WISHES[id][0], id, linger)
        case ("renew", renewals):
            return store.renew(
                [
                    Renewal(WISHES[id][0], id, ttl, None, permits if id in held else None, id not in held)
                    for id, ttl, permits in renewals
                ],
                1.0,
            )
        case ("evict", id, everyone):
            return store.evict(WISHES[id][0], None if everyone else id, "to see")
        case ("look", resource, limit):
            return store.inspect(resource, limit=limit)
        case ("scan", prefix, after):
            return store.scan(prefix, after, 2)
        case ("write", name, right, value):
            return store.compare_and_set(
                name, versions.get(name, 0) if right else 1, value, f"{len(versions)}"
            )
        case _:
            raise AssertionError(step)


def plain(answer: Any) -> Any:
    """An answer without ages, which differ where a lapse was noticed at different times."""
    if isinstance(answer, Standing):
        return (
            answer.id,
            answer.token,
            answer.permits,
            answer.admitted,
            round(answer.lapses_in, 6),
            answer.note,
        )
    if isinstance(answer, Queue):
        return (answer.resource, answer.capacity, [plain(standing) for standing in answer.standings])
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if isinstance(answer, Busy):
        return (answer.ahead, round(answer.retry_after, 6), answer.holder and answer.holder.token)
    return answer


def answered(store: Store, step: Any, versions: dict[str, int], held: set[str]) -> Any:
    try:
        return plain(drive(asked(store, step, versions, held)))
    except SettingsMismatch as mismatch:
        return mismatch.args


SEEDS = 50  # in each test
blocks = pytest.mark.parametrize("block", range(6))


@blocks
def test_the_lock_file_answers_as_the_reference_does(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        manual = ManualClock()
        space = Space(lambda: manual.now, Threads().mutex(), lambda: manual.micros)  # noqa: B023
        reference = MemoryStore(space, Threads())
        versions: dict[str, int] = {}
        held: set[str] = set()
        with TemporaryDirectory() as folder:
            # Two stores take turns: what one remembers for itself must not matter.
            files = [
                open_store(f"{folder}/locks.db", Threads(), asynchronous=False, clock=manual.clock)
                for _ in range(2)
            ]
            for turn, step in enumerate(script(seed)):
                if step[0] == "pass":
                    manual.now += step[1]
                elif step[0] == "wall":
                    manual.micros += step[1]
                else:
                    expected = answered(reference, step, versions, held)
                    assert answered(files[turn % 2], step, versions, held) == expected, f"seed {seed}: {step}"
                    if step[0] == "claim":
                        (held.add if isinstance(expected, Granted) else held.discard)(step[1])
                    elif step[0] == "write" and expected is not None:
                        versions[step[1]] = expected.version
            for file in files:
                drive(file.close())


def check_nobody_is_left_behind(
    file: sqlite3.Connection, now: float, told: dict[str, float], seed: int
) -> None:
    """Whoever waits was told to look again in time, or has been rung since."""
    for resource in ("mutex", "semaphore", "rw"):
        found = [Row(*raw) for raw in file.execute(CLAIMS["queue"], (resource,))]
        rows = [row for row in found if row.state != EVICTED]
        if any(not row.live(now) for row in rows):
            continue  # a lapse that nobody has noticed yet: those who watch it will, at that very time
        permits, lapses_at = [row.permits for row in rows], [row.lapses_at for row in rows]
        for place, row in enumerate(rows):
            if row.state == IN:
                continue
            inside = place < admitted(permits, row.capacity)
            due = now if inside else retry_after(permits, lapses_at, place, row.capacity)
            assert row.rung or told[row.id] <= due + 0.001, f"seed {seed}: {row}, told {told[row.id]}, {due}"
            if inside:
                break  # it has only to look, and then rings those behind it


@blocks
def test_nobody_who_waits_is_left_behind(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        manual = ManualClock()
        told: dict[str, float] = {}
        held: set[str] = set()
        with TemporaryDirectory() as folder:
            path = f"{folder}/locks.db"
            store = open_store(path, Threads(), asynchronous=False, clock=manual.clock)
            drive(store.scan("", "", 1))  # makes the tables
            with closing(sqlite3.connect(path)) as file:
                for step in script(seed):
                    if step[0] == "pass":
                        manual.now += step[1]
                    elif step[0] in ("claim", "release", "renew", "evict"):
                        with suppress(SettingsMismatch):
                            answer = drive(asked(store, step, {}, held))
                            if step[0] == "claim":
                                (held.add if isinstance(answer, Granted) else held.discard)(step[1])
                            if isinstance(answer, Busy):
                                told[step[1]] = manual.now + answer.retry_after
                    check_nobody_is_left_behind(file, manual.now, told, seed)
            drive(store.close())
