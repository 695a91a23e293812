"""Calls near the recursion limit: an error that is met again and again, also by whatever would clean up after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import interlock
from tests.attacks.depths import LIMIT, ROOM, acquires_near_the_limit, deep, limited
from tests.attacks.stage import eventually, fresh


def entered(lock: Any) -> None:
    with lock:
        pass


KINDS = ["lock", "lease", "min_hold", "rlock", "write", "semaphore", "multilock", "condition", "with"]


def taken(client: interlock.Client, kind: str, name: str) -> Callable[[], object]:
    """Take a lock; return the call that gives it back."""
    if kind == "with":
        return lambda: entered(client.lock(name))
    made: dict[str, Callable[[], Any]] = {
        "lock": lambda: client.lock(name),
        "lease": lambda: client.lock(name),
        "min_hold": lambda: client.lock(name, min_hold=0.01),
        "rlock": lambda: client.rlock(name),
        "write": lambda: client.rwlock(name).write(),
        "semaphore": lambda: client.semaphore(name, 1),
        "multilock": lambda: client.multilock([name, f"{name}:2"]),
        "condition": lambda: client.condition(name),
    }
    lock = made[kind]()
    lease = lock.acquire()
    release: Callable[[], object] = lease.release if kind == "lease" else lock.release
    return release


@pytest.mark.filterwarnings("ignore:coroutine")  # the limit strikes before some of them are begun
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_release_that_meets_the_recursion_limit_is_finished_by_the_keeper(
    store: str, kind: str, tmp_path: Any
) -> None:
    url = fresh() if store == "memory" else f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url, ttl=60) as client, interlock.connect(url) as judge:
        failed = 0
        for room in range(1, ROOM):
            release = taken(client, kind, f"x{room}")
            try:
                with limited():
                    deep(LIMIT - room, release)
            except RecursionError:
                failed += 1
                try:  # one that had not begun may be tried again
                    release()
                except interlock.NotHeld:
                    pass
            except interlock.InterlockError:
                failed += 1
        assert failed
        eventually(lambda: not list(judge.scan()), 10)


@pytest.mark.filterwarnings("ignore:coroutine", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_an_acquire_that_meets_the_recursion_limit_leaves_nothing_behind(store: str, tmp_path: Any) -> None:
    url = fresh() if store == "memory" else f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url, ttl=60) as client, interlock.connect(url) as judge:
        acquires_near_the_limit(client, judge)
        eventually(lambda: not list(judge.scan()), 10)
