"""A thread that waits alone reads the doorbell itself, and nobody is left without a reader."""

from __future__ import annotations

import gc
import os
import select
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.kit.wake_pipe import WakePipe
from interlock.backends.sql.sqlite import SqliteStore, doorbell, notifier, open_store
from interlock.backends.sql.sqlite.bell_reader import BellReader
from interlock.backends.sql.sqlite.doorbell import Doorbell
from interlock.backends.sql.waking import Waiter
from interlock.model import Busy, Granted
from tests.patience import PATIENCE
from tests.sqlite.common import claim, eventually
from tests.sqlite.conftest import Open
from tests.sqlite.waiting import SOON, listening, reading, stand, waiting

pytestmark = pytest.mark.skipif(
    not doorbell.available() or not hasattr(select, "poll"), reason="nothing to read, or no poll"
)


@pytest.fixture(autouse=True)
def bells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is saved by the net."""
    monkeypatch.setattr(notifier, "POLL_PERIOD_S", 30.0)


def refused(store: SqliteStore, id: str, resource: str = "r") -> Busy:
    (busy,) = stand(store, claim(resource, id))
    assert isinstance(busy, Busy)
    return busy


def test_a_thread_that_waits_alone_is_woken_without_another(opened: Open) -> None:
    holder, store = opened(), opened()
    stand(holder, claim(id="a"))
    busy = refused(store, "b")
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: reading(store))
        assert store._notifier._thread is None
        drive(holder.release("r", "a"))
    assert took[0] < SOON
    assert store._notifier._thread is None


def test_when_a_second_waits_the_notifiers_thread_reads_for_both(opened: Open) -> None:
    holder, store = opened(), opened()
    stand(holder, claim("r", "a"), claim("s", "a"))
    first, second = refused(store, "b", "r"), refused(store, "b", "s")
    with waiting(lambda: store.wait(claim("r", "b"), first, PATIENCE)) as one:
        eventually(lambda: reading(store))
        with waiting(lambda: store.wait(claim("s", "b"), second, PATIENCE)) as two:
            eventually(lambda: store._notifier._thread is not None and not reading(store))
            drive(holder.release("s", "a"))
        drive(holder.release("r", "a"))
    assert max(one[0], two[0]) < SOON


def test_a_ring_that_the_first_reads_reaches_a_second_that_waits_for_the_same(opened: Open) -> None:
    """It may be in the poll when the second comes, and read what is meant for both."""
    store, writer = opened(), opened()
    with waiting(lambda: store.watch_register("n", 0, PATIENCE)) as took:
        eventually(lambda: reading(store))
        second = Waiter(threading.Event(), "rn")
        with store._notifier._mutex:
            store._notifier._waiters.add(second, "rn")  # not by `listen`: no thread helps
        drive(writer.compare_and_set("n", 0, "v", "1"))
        assert second.signal.wait(PATIENCE)  # type: ignore[attr-defined]
    assert took[0] < SOON


def test_what_this_process_does_itself_wakes_the_thread_that_reads(opened: Open) -> None:
    store = opened()
    stand(store, claim(id="a"))
    busy = refused(store, "b")
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: reading(store))
        drive(store.release("r", "a"))
    assert took[0] < SOON


@contextmanager
def on_alarm(act: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: act())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_is_woken_by_a_signal_handler_of_its_own_thread(opened: Open) -> None:
    store = opened()
    stand(store, claim(id="a"))
    busy = refused(store, "b")
    with on_alarm(lambda: store._notifier.wake("cb")):
        began = time.monotonic()
        drive(store.wait(claim(id="b"), busy, PATIENCE))
    assert time.monotonic() - began < PATIENCE / 2


def test_an_exception_in_the_middle_of_reading_leaves_nobody_without_a_reader(opened: Open) -> None:
    holder, store = opened(), opened()
    stand(holder, claim(id="a"))
    busy = refused(store, "b")

    def strike() -> None:
        raise KeyboardInterrupt

    with on_alarm(strike), pytest.raises(KeyboardInterrupt):
        drive(store.wait(claim(id="b"), busy, PATIENCE))
    assert not store._notifier._waiters
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: reading(store))
        drive(holder.release("r", "a"))
    assert took[0] < SOON


def test_closing_ends_the_reading_and_closes_what_was_polled(opened: Open) -> None:
    store = opened()
    stand(store, claim(id="a"))
    busy = refused(store, "b")
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: reading(store))
        drive(store.close())
    assert took[0] < SOON
    assert not store._notifier.bell
    assert store._notifier._pipe is None


def test_a_handler_that_closes_the_store_leaves_the_sockets_to_the_thread_that_polls_them(
    opened: Open,
) -> None:
    """Closed under the poll, their numbers could be another file's when it goes on."""
    store = opened()
    stand(store, claim(id="a"))
    busy = refused(store, "b")
    open_within: list[bool] = []

    def close() -> None:
        drive(store.close(), nested=True)
        open_within.append(bool(store._notifier.bell))

    with on_alarm(close), suppress(Exception):
        drive(store.wait(claim(id="b"), busy, 5.0))
    assert open_within == [True]
    assert not store._notifier.bell


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_a_store_that_nobody_closes_leaves_no_pipe_open(path: str) -> None:
    store = open_store(path, Threads(), asynchronous=False)
    drive(store.watch_register("n", 0, 0.01))
    assert store._notifier._pipe is not None
    del store
    gc.collect()


def test_without_descriptors_for_a_pipe_the_notifiers_thread_reads(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: WakePipe) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(WakePipe, "__init__", refuse)
    holder, store = opened(), opened()
    stand(holder, claim(id="a"))
    busy = refused(store, "b")
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: store._notifier._thread is not None)
        drive(holder.release("r", "a"))
    assert took[0] < SOON


def test_a_signal_that_is_set_between_the_look_at_it_and_the_poll_ends_the_poll() -> None:
    bell, pipe = Doorbell(), WakePipe()
    bell.hang()

    class SetAfterLook:
        def is_set(self) -> bool:
            reader.wake()  # as by another thread, just after
            return False

        def set(self) -> None: ...

    reader = BellReader(SetAfterLook(), ("c",), bell, pipe)
    try:
        began = time.monotonic()
        assert reader.receive(PATIENCE, 1) == []
        assert time.monotonic() - began < PATIENCE / 2
    finally:
        pipe.close()
        bell.take_down()


@pytest.mark.parametrize("rung", [["cb"], ["cx"], ["cb", "cx"], ["cbb"], [""]])
def test_a_ring_is_read_as_what_it_names_whoever_is_waited_for(rung: list[str]) -> None:
    bell, sender, pipe = Doorbell(), Doorbell(), WakePipe()
    reader = BellReader(threading.Event(), ("cb",), _hung(bell), pipe)
    try:
        sender.ring(bell.address, rung)
        assert reader.receive(PATIENCE, 1) == rung
        assert reader.receive(0.0, 1) == []
    finally:
        pipe.close()
        bell.take_down()


def _hung(bell: Doorbell) -> Doorbell:
    bell.hang()
    return bell


def test_a_flood_is_not_read_by_the_waiter_either(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "POLL_PERIOD_S", 0.05)
    holder, store = opened(), opened()
    stand(holder, claim(id="a"))
    busy = refused(store, "b")
    with waiting(lambda: store.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: reading(store))

        def ring() -> bool:
            holder._notifier.doorbell.ring(store._notifier.bell, ["cnobody"])
            return store._notifier._deaf_until > 0

        eventually(ring)
        assert store._notifier._thread is None
        drive(holder.release("r", "a"))
    assert took[0] < SOON


# ---- the grant, by a look -------------------------------------------------------------------


def admitted(holder: SqliteStore, store: SqliteStore, **wishes: Any) -> Busy:
    """`b` of `store` waited for `a`, and was admitted when that went."""
    stand(holder, claim(id="a"))
    (busy,) = stand(store, claim(id="b", **wishes))
    assert isinstance(busy, Busy)
    drive(holder.release("r", "a"))
    return busy


def test_a_wait_ends_with_the_grant_that_a_claim_would_get(opened: Open) -> None:
    holder, store = opened(), opened()
    busy = admitted(holder, store, place_ttl=10.0)
    granted = drive(store.wait(claim(id="b", place_ttl=10.0), busy, PATIENCE))
    assert isinstance(granted, Granted)
    again = drive(store.claim(claim(id="b", place_ttl=10.0)))
    assert isinstance(again, Granted)
    assert granted.token == again.token
    assert granted.ttl <= 10.0  # as long as its place lives, until it is renewed
    assert granted.sent is not None
    assert granted.sent <= store._runtime.now()


def test_a_place_that_is_about_to_lapse_is_not_taken_for_a_lease(opened: Open) -> None:
    holder, store = opened(), opened()
    busy = admitted(holder, store, place_ttl=1.0)
    time.sleep(0.6)
    assert drive(store.wait(claim(id="b", place_ttl=1.0), busy, PATIENCE)) is None
    assert isinstance(drive(store.claim(claim(id="b", place_ttl=1.0))), Granted)


def test_a_slow_look_shortens_the_grant(opened: Open, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, store = opened(), opened()
    admitted(holder, store, place_ttl=10.0)
    steps, now = count(), store.now()
    for clock in (store, store._runtime):  # half a second passes with each look at a clock
        monkeypatch.setattr(clock, "now", lambda: now + 0.5 * next(steps))
    granted = drive(store._look_for_grant(claim(id="b", place_ttl=10.0), now + PATIENCE))
    assert granted is not None
    assert granted.sent is not None
    with closing(sqlite3.connect(path)) as connection:
        ((lapses_at,),) = connection.execute("select lapses_at from claim").fetchall()
    assert granted.sent + granted.ttl <= lapses_at


def test_a_row_of_an_earlier_start_of_the_machine_has_no_grant(opened: Open, path: str) -> None:
    holder, store = opened(), opened()
    busy = admitted(holder, store, place_ttl=10.0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update claim set lapses_at = lapses_at + 100.0")
        connection.commit()
    assert drive(store.wait(claim(id="b", place_ttl=10.0), busy, 0.5)) is None


def test_a_waiter_that_was_only_told_to_look_again_has_no_grant(opened: Open) -> None:
    store = opened()
    stand(store, *(claim(id=id) for id in "abc"))
    drive(store.release("r", "b"))  # c watched it
    assert drive(store.wait(claim(id="c"), Busy(1, 1.0, None), PATIENCE)) is None


def test_an_evicted_waiter_has_no_grant(opened: Open) -> None:
    holder, store = opened(), opened()
    busy = admitted(holder, store)
    drive(holder.evict("r", "b", "why"))
    assert drive(store.wait(claim(id="b"), busy, PATIENCE)) is None


def test_a_file_that_was_replaced_since_grants_nothing(opened: Open, path: str) -> None:
    """The row is still there in the file that this process has open, but others are in another one by now."""
    holder, store = opened(), opened()
    busy = admitted(holder, store)
    store._database.read(store.now() + 5.0, lambda tx: None)  # it has just seen that all is well
    for suffix in ("", "-wal", "-shm"):
        os.rename(path + suffix, path + ".old" + suffix)
    assert drive(store.wait(claim(id="b"), busy, PATIENCE)) is None


def test_a_holder_that_was_granted_by_a_look_waits_for_its_end_without_being_woken(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "POLL_PERIOD_S", 0.02)
    holder, store = opened(), opened()
    busy = admitted(holder, store)
    assert isinstance(drive(store.wait(claim(id="b"), busy, PATIENCE)), Granted)
    drive(store.wait(claim(id="b"), None, 0.5))  # which the ring of its admission may end
    began = time.monotonic()
    drive(store.wait(claim(id="b"), None, 0.5))
    assert time.monotonic() - began >= 0.49
    with waiting(lambda: store.wait(claim(id="b"), None, PATIENCE)) as took:
        eventually(listening(store))
        drive(holder.evict("r", "b", "why"))
    assert took[0] < SOON
