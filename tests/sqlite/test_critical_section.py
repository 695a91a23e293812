"""The connection's guard: whatever strikes a thread, the guard is given back, and nobody waits for itself."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.errors import StoreUnavailable
from interlock.model import Granted, Renewal, Renewed
from tests.patience import PATIENCE, until
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open
from tests.sqlite.contender import ROOT, surroundings


def test_exceptions_thrown_into_threads_leave_a_client_that_works(path: str) -> None:
    """It runs apart: what is thrown can strike the test's own machinery, too."""
    words = [sys.executable, "-m", "tests.redis.throwing", f"sqlite:///{path}", "2"]
    done = subprocess.run(
        words, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=3 * PATIENCE
    )
    told = json.loads(done.stdout)
    assert told["struck"] > 20
    assert told["done"] == 20, "a guard was left locked"


def test_an_interrupt_that_strikes_while_a_thread_waits_for_the_guard_is_what_it_raises(
    store: SqliteStore,
) -> None:
    database = store._database
    inside, leave = threading.Event(), threading.Event()
    holding = threading.Thread(target=lambda: database.run(1e12, _stay, inside, leave))
    holding.start()
    assert inside.wait(PATIENCE)

    def alarm(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            drive(store.claim(claim()))
    finally:
        signal.signal(signal.SIGALRM, before)
        leave.set()
        holding.join(PATIENCE)
    assert isinstance(drive(store.claim(claim())), Granted)


def _stay(_: object, inside: threading.Event, leave: threading.Event) -> None:
    inside.set()
    leave.wait(PATIENCE)


def test_an_error_that_is_being_handled_is_not_taken_for_an_interrupt(store: SqliteStore) -> None:
    """Releases are called in `except` clauses, while another thread uses the connection."""
    database = store._database
    inside, leave = threading.Event(), threading.Event()
    holding = threading.Thread(target=lambda: database.run(1e12, _stay, inside, leave))
    holding.start()
    assert inside.wait(PATIENCE)
    threading.Timer(0.1, leave.set).start()
    try:
        raise ValueError("of no concern here")
    except ValueError:
        assert isinstance(drive(store.claim(claim())), Granted)
    holding.join(PATIENCE)


def test_a_store_knows_when_its_own_thread_is_inside(opened: Open) -> None:
    store, beside = opened(), opened()
    seen: list[bool] = []

    def look(_: Transaction) -> None:
        seen.append(store.inside())
        seen.append(beside.inside())  # the same file: it would wait for a write lock that this thread holds
        elsewhere = threading.Thread(target=lambda: seen.append(store.inside()))
        elsewhere.start()
        elsewhere.join()

    assert not store.inside()
    database = store._database
    database.write(database.clock.now() + PATIENCE, look)
    assert seen == [True, True, False]
    assert not store.inside()


@pytest.mark.parametrize("which", ["the same client", "another client"])
def test_a_call_from_within_is_refused_at_once_and_disturbs_nothing(opened: Open, which: str) -> None:
    store = opened()
    asked = store if which == "the same client" else opened()
    took: list[float] = []

    def finalizer(tx: Transaction) -> str:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            drive(asked.claim(claim("r", "from within")))
        took.append(time.monotonic() - began)
        return "done"

    database = store._database
    assert database.write(database.clock.now() + PATIENCE, finalizer)[0] == "done"
    assert took[0] < 2.0  # without looking, it would wait for itself as long as it may: 5 s
    assert isinstance(drive(asked.claim(claim())), Granted)


def test_generators_that_are_collected_at_any_moment_hang_nobody(path: str) -> None:
    client = interlock.connect(f"sqlite:///{path}", ttl=5.0)
    other = interlock.connect(f"sqlite:///{path}", ttl=5.0)
    ended = threading.Event()

    def held(name: str) -> Iterator[None]:
        with (client if len(name) % 2 else other).lock(name):
            yield

    def rounds() -> None:
        for number in range(150):
            generator = held("x" * (1 + number % 4) + f"{number:04}")
            next(generator)
            cycle: list[object] = [generator]
            cycle.append(cycle)
            del generator, cycle
            with client.lock("busy"), other.lock("busy too"):
                pass
        ended.set()

    gc.set_threshold(7, 1, 1)
    try:
        thread = threading.Thread(target=rounds, daemon=True)
        thread.start()
        assert ended.wait(PATIENCE), "a thread waits for itself"
    finally:
        gc.set_threshold(700, 10, 10)
    gc.collect()
    until(lambda: not list(client.scan()))
    client.close()
    other.close()


def test_what_was_closed_from_within_is_closed_in_the_end(store: SqliteStore) -> None:
    database = store._database
    database.run(database.clock.now() + PATIENCE, lambda _: database.close())
    assert not database.connected
    with pytest.raises(interlock.ClientClosed):
        drive(store.claim(claim()))


def test_renewals_come_before_the_clients_own_threads(store: SqliteStore) -> None:
    drive(store.claim(claim("held", "h")))
    database: Database = store._database
    inside, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def ordinary(number: int) -> None:
        def note(_: object) -> None:
            order.append(f"ordinary {number}")

        database.run(database.clock.now() + PATIENCE, note)

    def renewal() -> None:
        (answer,) = drive(store.renew([Renewal("held", "h", 30.0)], PATIENCE))
        order.append("renewal" if isinstance(answer, Renewed) else repr(answer))

    holding = threading.Thread(target=lambda: database.run(1e12, _stay, inside, leave))
    holding.start()
    assert inside.wait(PATIENCE)
    others = [threading.Thread(target=ordinary, args=(number,)) for number in range(20)]
    for other in others:
        other.start()
    keeper = threading.Thread(target=renewal)
    keeper.start()
    until(lambda: database._urgent_until > 0)
    leave.set()
    for thread in (holding, keeper, *others):
        thread.join(PATIENCE)
    assert order[0] == "renewal"
    assert len(order) == 21


def test_one_who_was_in_a_hurry_and_is_gone_holds_nobody_up(store: SqliteStore) -> None:
    """An exception thrown into it must not leave everybody waiting for its turn."""
    database: Database = store._database
    database._urgent_until = database.clock.now() + 0.05
    assert isinstance(drive(store.claim(claim())), Granted)


def test_a_hand_off_gives_way_to_a_renewal(store: SqliteStore) -> None:
    assert isinstance(drive(store.claim(claim())), Granted)
    database: Database = store._database
    now = database.clock.now()
    database._urgent_until = now + 0.05
    done_at, _ = database.write(now + PATIENCE, lambda tx: tx.now)
    assert done_at >= now + 0.05


def test_a_client_that_is_closed_in_the_midst_of_a_hand_off_leaves_the_file(store: SqliteStore) -> None:
    """By a signal handler of the thread that does it."""
    assert isinstance(drive(store.claim(claim())), Granted)
    database: Database = store._database
    now = database.clock.now()
    database.write(now + PATIENCE, lambda tx: database.close())
    assert not database.connected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_from_within_a_call_leaves_the_guard_as_it_was(store: SqliteStore) -> None:
    database = store._database

    def fork(_: object) -> int:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert store.inside()
        return child

    assert database.run(database.clock.now() + PATIENCE, fork)
    assert not store.inside()
    assert isinstance(drive(store.claim(claim())), Granted)
