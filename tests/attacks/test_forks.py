"""Attacks by forks: what other threads were doing is the parent's alone."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import interlock
from interlock._runtime.threads import Threads
from tests.attacks.stage import eventually
from tests.forked_child import in_a_child
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def test_a_child_that_closes_its_client_leaves_the_parents_waiters_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with interlock.connect(url) as other, interlock.connect(url) as client:
        held = other.lock("x").acquire()
        assert held is not None
        got: list[interlock.Lease | None] = []
        waiter = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=PATIENCE)))
        waiter.start()
        eventually(lambda: other.inspect("x").waiters)
        (standing,) = other.inspect("x").waiters

        def close() -> int:
            under_way = len(client._core.attempts)
            client.close()
            return under_way

        assert in_a_child(close) == "0"
        assert [waiting.id for waiting in other.inspect("x").waiters] == [standing.id]
        held.release()
        waiter.join(PATIENCE)
        assert got[0] is not None


def test_what_a_parent_has_to_tell_is_not_told_by_its_child() -> None:
    runtime = Threads()
    told: list[str] = []
    begun, end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        end.wait(PATIENCE)

    runtime.later(slow, None)
    begun.wait(PATIENCE)
    runtime.later(told.append, "the parent's")

    def tell() -> list[str]:
        runtime.later(told.append, "the child's")
        eventually(lambda: "the child's" in told, within=10)
        return told

    try:
        assert in_a_child(tell) == '["the child\'s"]'
    finally:
        end.set()
    eventually(lambda: told == ["the parent's"])


@pytest.mark.parametrize("kind", ["rlock", "reader", "writer"])
def test_a_child_takes_a_lock_of_its_parent_anew_and_does_not_enter_it_again(
    kind: str, tmp_path: Path
) -> None:
    """As the page about forks says: workers of a pool never go back to the code around the fork."""
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        lock = {
            "rlock": client.rlock("x"),
            "reader": client.rwlock("x").read(),
            "writer": client.rwlock("x").write(),
        }[kind]
        body = ExitStack()
        lease = body.enter_context(lock)

        def in_the_body_of_the_parent() -> list[str]:
            told: list[str] = []
            at_once = lock.acquire(timeout=0.05)
            told.append("waits" if at_once is None else "shares" if at_once.token > lease.token else "enters")
            os.write(writing, b".")
            mine = at_once or lock.acquire(timeout=PATIENCE)
            assert mine is not None
            told.append("holds its own" if mine.token > lease.token else "holds the parent's")
            lock.release()
            for ask in (lease.check, body.close):
                with pytest.raises(interlock.LeaseLost) as raised:
                    ask()
                told.append(raised.value.cause)
            return told

        def release_when_told() -> None:
            os.read(reading, 1)
            lease.release()

        reading, writing = os.pipe()
        thread = threading.Thread(target=release_when_told)
        thread.start()
        answer = in_a_child(in_the_body_of_the_parent)
        thread.join(PATIENCE)
        os.close(reading)
        os.close(writing)
        first = "shares" if kind == "reader" else "waits"
        assert answer == repr([first, "holds its own", "forked", "forked"])
        with pytest.raises(interlock.NotHeld):  # another thread has released it
            body.close()
