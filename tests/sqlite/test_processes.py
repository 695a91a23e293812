"""Processes contend for real: they wait, hand over, are stopped and are killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from interlock.testing.lag import at_most
from tests.patience import PATIENCE
from tests.sqlite.common import eventually, rows
from tests.sqlite.contender import Contender

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")


def in_line(path: str, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("select count(*) from claim where resource = ?", (name,)).fetchone()
        return int(count)


def has_bells(path: str, count: int) -> bool:
    return rows(path, "bell") == count


def quickly(turn: Callable[[], float], within: float) -> None:
    """Assert that a turn takes less than this whenever the machine runs at once whoever is woken.

    The best eighth of forty turns in a row is such a moment, and a busy machine has one sooner or later. `dev.py bench`
    has the median on a quiet machine.
    """
    took: list[float] = []
    while len(took) < 40 or sorted(took[-40:])[5] >= within:
        assert len(took) < 400, (
            f"the best took {1e3 * min(took):.2f} ms, the median {1e3 * median(took):.2f} ms"
        )
        took.append(turn())


def test_no_update_is_lost_under_a_lock_that_four_processes_share(path: str, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    with ExitStack() as stack:
        others = [stack.enter_context(Contender(path)) for _ in range(4)]
        for other in others:
            other.tell("count_up", "counter", str(number), 100)
        tokens = [other.hear()["tokens"] for other in others]
    assert number.read_text() == "400"
    everyone = sorted(token for each in tokens for token in each)
    assert len(set(everyone)) == 400
    assert all(each == sorted(each) for each in tokens)


def test_a_hand_off_between_two_processes_takes_less_than_a_millisecond(path: str) -> None:
    with Contender(path) as first, Contender(path) as second:
        pair = [first, second]  # who holds, and who waits

        def turn() -> float:
            holder, waiter = pair
            waiter.tell("acquire", "r")
            eventually(lambda: in_line(path, "r") == 2)
            gone = holder.ask("release", "r")["at"]
            pair.reverse()
            return float(waiter.hear()["at"] - gone)

        first.ask("acquire", "r")
        quickly(turn, within=0.001)


def test_an_event_set_in_one_process_wakes_another_at_once(path: str) -> None:
    with Contender(path) as setter, Contender(path) as waiter:
        turns = count(1)

        def turn() -> float:
            number = next(turns)
            waiter.tell("event_wait", f"e{number}")
            eventually(partial(has_bells, path, number))
            at = setter.ask("event_set", f"e{number}")["at"]
            return float(waiter.hear()["at"] - at)

        quickly(turn, within=0.01)  # a poll would take 50 ms


def test_notifying_a_condition_wakes_a_waiter_in_another_process_at_once(path: str) -> None:
    with Contender(path) as notifier, Contender(path) as waiter:

        def turn() -> float:
            waiter.tell("condition_wait", "c")
            assert waiter.hear()["waiting"]
            eventually(lambda: in_line(path, "c") == 0)  # it has let go of the lock: it waits
            at = notifier.ask("notify", "c")["at"]
            answer = waiter.hear()
            assert answer["woken"]
            return float(answer["at"] - at)

        quickly(turn, within=0.02)


def test_a_killed_holder_blocks_nobody_beyond_its_ttl(path: str) -> None:
    with Contender(path) as holder, Contender(path) as waiter:
        holder.ask("acquire", "r", ttl=1.0)
        waiter.tell("acquire", "r", ttl=1.0)
        eventually(lambda: in_line(path, "r") == 2)
        with at_most(1.0 + 0.25):
            holder.process.kill()
            waiter.hear()


@pytest.mark.chaos
def test_fifty_killed_waiters_of_a_hundred_delay_the_rest_by_one_place_ttl_in_all(path: str) -> None:
    with ExitStack() as stack:
        holder = stack.enter_context(Contender(path))
        crews = [stack.enter_context(Contender(path)) for _ in range(10)]
        holder.ask("acquire", "r", ttl=2.0)
        for crew in crews:
            crew.tell("wait_in_line", "r", 10, ttl=2.0)  # a place lives as long as the ttl, at most 10 s
        eventually(lambda: in_line(path, "r") == 101)
        for crew in crews[::2]:
            crew.process.kill()
        with at_most(2.0 + 3.0, "more than one place was waited for"):
            holder.ask("release", "r")
            for crew in crews[1::2]:
                for _ in range(10):
                    crew.hear()


@pytest.mark.chaos
def test_a_stopped_holder_loses_its_lease_and_cannot_release_the_next_ones(path: str) -> None:
    with Contender(path) as paused, Contender(path) as next_one, Contender(path) as third:
        first = paused.ask("acquire", "r", ttl=1.0)
        paused.process.send_signal(signal.SIGSTOP)
        with at_most(1.0 + 1.0):
            second = next_one.ask("acquire", "r", ttl=20.0)
        assert second["token"] > first["token"]
        paused.process.send_signal(signal.SIGCONT)
        assert paused.ask("check", "r")["state"] == "lost"
        paused.ask("release", "r")
        assert third.ask("acquire", "r", timeout=0.2)["token"] is None


@pytest.mark.chaos
def test_killing_writers_at_any_moment_loses_nothing_granted(path: str) -> None:
    """Processes are killed in the middle of whatever they do; the file stays sound and nobody is stuck."""
    with Contender(path) as keeper:
        kept = keeper.ask("acquire", "kept", ttl=5.0)["token"]
        for round in range(6):
            with ExitStack() as stack:
                for victim in [stack.enter_context(Contender(path)) for _ in range(2)]:
                    victim.tell("churn", "r")
                time.sleep(0.05 + 0.013 * round)  # any moment will do: leaving the block kills them
        assert keeper.ask("check", "kept")["state"] == "held"
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
            held = connection.execute("select token from claim where resource = 'kept'").fetchall()
            assert held == [(kept,)]
        with Contender(path) as after:
            assert after.ask("acquire", "kept", timeout=0.1)["token"] is None
            assert keeper.ask("release", "kept")["lost"] is None
            assert after.ask("acquire", "kept")["token"] > kept


def test_a_process_that_holds_the_file_locked_is_named_as_the_trouble_in_time(path: str) -> None:
    import interlock

    client = interlock.connect(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with at_most(3.0):
            with pytest.raises(interlock.StoreUnavailable, match="kept the file locked"):
                client.lock("r", timeout=0.3).acquire()
        other.execute("rollback")
    with client.lock("r", timeout=PATIENCE):
        pass
    client.close()


def test_deleting_the_file_loses_the_leases_in_it_and_tokens_still_rise(path: str) -> None:
    with Contender(path) as holder:
        before = holder.ask("acquire", "r", ttl=0.6)["token"]
        for name in (path, path + "-wal", path + "-shm"):
            os.unlink(name)
        with Contender(path) as newcomer:
            after = newcomer.ask("acquire", "r", ttl=20.0)["token"]
            eventually(lambda: holder.ask("check", "r")["state"] == "lost")
            holder.ask("release", "r")
            assert newcomer.ask("check", "r")["state"] == "held"
    assert after > before
