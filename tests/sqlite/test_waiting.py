"""Waits end at once when they should, on time when they must, and cost one thread however many there are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.sql import steps
from interlock.backends.sql.sqlite import SqliteStore, doorbell, notifier
from interlock.backends.sql.sqlite.doorbell import Doorbell
from interlock.backends.sql.waking import ChangeRead, Waiter
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Granted, Renewal
from interlock.testing.lag import at_most
from tests.patience import PATIENCE
from tests.sqlite.common import ManualClock, claim, eventually
from tests.sqlite.conftest import Open
from tests.sqlite.contender import surroundings
from tests.sqlite.waiting import SOON, listening, reading, stand, waiting


@pytest.fixture
def bells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is saved by the net."""
    if not doorbell.available():
        pytest.skip("no doorbells here")
    monkeypatch.setattr(notifier, "POLL_PERIOD_S", 30.0)


def rung(store: SqliteStore, id: str, resource: str = "r") -> bool:
    """Whether a wait of this claim would return at once."""
    return not drive(store._unchanged(claim(resource, id), Busy(1, 1.0, None), store.now() + 5.0))


FROZEN = """
import sys, threading, time
import interlock

stopped = time.monotonic()
time.monotonic = lambda: stopped  # as libraries do that freeze the time for tests
with interlock.connect(sys.argv[1]) as client, client.lock("x"):
    lock = client.lock("x")
    threads = [threading.Thread(target=lock.acquire, args=(True, 0.2)) for _ in range(int(sys.argv[2]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize("waiters", ["1", "3"])
def test_a_wait_ends_in_its_time_though_a_test_has_stopped_the_clock(waiters: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    subprocess.run(
        [sys.executable, "-c", FROZEN, url, waiters], env=surroundings(), check=True, timeout=PATIENCE
    )


# ---- doorbells ----------------------------------------------------------------------------


@pytest.mark.usefixtures("bells_only")
@pytest.mark.parametrize("capacity", [1, 10])
def test_a_release_in_another_process_ends_a_wait_at_once(opened: Open, capacity: int) -> None:
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a", permits=capacity, capacity=capacity))
    (busy,) = stand(waiter, claim(id="b", capacity=capacity))
    with waiting(lambda: waiter.wait(claim(id="b", capacity=capacity), busy, 30.0)) as took:
        eventually(lambda: reading(waiter))
        drive(holder.release("r", "a"))
    assert took[0] < SOON
    assert isinstance(drive(waiter.claim(claim(id="b", capacity=capacity))), Granted)


def test_a_release_before_the_wait_begins_is_not_missed(opened: Open) -> None:
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    (busy,) = stand(waiter, claim(id="b"))
    drive(holder.release("r", "a"))
    with at_most(1.0):
        drive(waiter.wait(claim(id="b"), busy, 30.0))


@pytest.mark.usefixtures("bells_only")
@pytest.mark.parametrize("how", ["release", "evict"])
def test_a_holder_that_waits_is_woken_when_somebody_removes_it(opened: Open, how: str) -> None:
    remover, holder = opened(), opened()
    stand(holder, claim(id="a"))
    with waiting(lambda: holder.wait(claim(id="a"), None, 30.0)) as took:
        eventually(lambda: reading(holder))
        drive(remover.release("r", "a") if how == "release" else remover.evict("r", "a", "why"))
    assert took[0] < SOON


@pytest.mark.usefixtures("bells_only")
def test_a_changed_register_ends_a_watch_at_once(opened: Open) -> None:
    writer, watcher = opened(), opened()
    with waiting(lambda: watcher.watch_register("n", 0, 30.0)) as took:
        eventually(lambda: reading(watcher))
        drive(writer.compare_and_set("n", 0, "v", "1"))
    assert took[0] < SOON


@pytest.mark.usefixtures("bells_only")
@pytest.mark.parametrize("what", ["comes", "leaves", "note"])
def test_a_changed_queue_ends_a_watch_at_once(opened: Open, what: str) -> None:
    other, watcher = opened(), opened()
    if what != "comes":
        stand(other, claim(id="a"))
    seen = drive(watcher.inspect("r"))
    with waiting(lambda: watcher.watch("r", seen, 30.0)) as took:
        eventually(lambda: reading(watcher))
        if what == "comes":
            stand(other, claim(id="a"))
        elif what == "leaves":
            drive(other.release("r", "a"))
        else:
            drive(other.renew([Renewal("r", "a", 30.0, note="new")]))
    assert took[0] < SOON


def test_a_renewal_does_not_end_a_watch(opened: Open) -> None:
    other, watcher = opened(), opened()
    stand(other, claim(id="a"))
    seen = drive(watcher.inspect("r"))
    began = time.monotonic()
    with waiting(lambda: watcher.watch("r", seen, 1.0)):
        eventually(listening(watcher))
        drive(other.renew([Renewal("r", "a", 30.0)]))
    assert time.monotonic() - began >= 0.99


# ---- the net ----------------------------------------------------------------------------------


def test_a_lost_ring_costs_no_more_than_a_poll(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doorbell, "ring", lambda *_: None)
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    (busy,) = stand(waiter, claim(id="b"))
    with waiting(lambda: waiter.wait(claim(id="b"), busy, 30.0)) as took:
        eventually(listening(waiter))
        drive(holder.release("r", "a"))
    assert took[0] < 10 * notifier.POLL_PERIOD_S
    with waiting(lambda: waiter.watch_register("n", 0, 30.0)) as took:
        eventually(listening(waiter))
        drive(holder.compare_and_set("n", 0, "v", "1"))
    assert took[0] < 10 * notifier.POLL_PERIOD_S


def test_without_doorbells_waits_end_by_polling(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (doorbell, notifier):
        monkeypatch.setattr(module, "available", lambda: False)
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    (busy,) = stand(waiter, claim(id="b"))
    with waiting(lambda: waiter.wait(claim(id="b"), busy, 30.0)) as took:
        eventually(listening(waiter))
        drive(holder.release("r", "a"))
    assert took[0] < 0.5
    with waiting(lambda: waiter.watch_register("n", 0, 30.0)) as took:
        eventually(listening(waiter))
        drive(holder.compare_and_set("n", 0, "v", "1"))
    assert took[0] < 0.5


def test_a_flood_of_strangers_datagrams_wakes_nobody_and_breaks_nothing(opened: Open) -> None:
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    (busy,) = stand(waiter, claim(id="b"))
    with waiting(lambda: waiter.wait(claim(id="b"), busy, 30.0)) as took:
        eventually(listening(waiter))
        for _ in range(1000):
            holder._notifier.doorbell.ring(
                waiter._notifier.bell, ["cnobody", "\udcff".encode("utf-8", "ignore").decode()]
            )
        drive(holder.release("r", "a"))
    assert took[0] < 10 * notifier.POLL_PERIOD_S


@pytest.mark.parametrize("topic", ["cnobody", "cb"])
def test_a_flood_costs_little_and_a_hand_over_is_still_quick(opened: Open, topic: str) -> None:
    """Anybody on the machine may ring; the place of a bell is no secret, and its topics can be guessed."""
    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    (busy,) = stand(waiter, claim(id="b"))
    with flooded(waiter, topic), waiting(lambda: waiter.wait(claim(id="b"), busy, PATIENCE)) as took:
        eventually(lambda: waiter._notifier._deaf_until > 0)
        spent = spent_in_a_second()
        drive(holder.release("r", "a"))
    assert spent < 0.25, f"{100 * spent:.0f} % of a core"
    assert took[0] < SOON / 2


def test_a_flood_between_rings_for_somebody_is_a_flood(opened: Open) -> None:
    store = opened()
    store._notifier.hang()
    waiter = Waiter(threading.Event(), "cb", resource="r")
    store._notifier._waiters.add(waiter, *waiter.topics)  # and no thread that listens, too

    class Bell(Doorbell):
        rings = cycle([["cb"], [doorbell.UNKNOWN], ["cb", doorbell.UNKNOWN]])

        def receive(self, timeout: float, most: int = 1) -> list[str]:
            return next(self.rings)

    for _ in range(300):
        store._notifier._receive(0.0, Bell())
    assert store._notifier._deaf_until > 0.0


def spent_in_a_second() -> float:
    """The share of a core that this process takes."""
    before, began = time.process_time(), time.monotonic()
    time.sleep(1.0)
    return (time.process_time() - before) / (time.monotonic() - began)


@contextmanager
def flooded(store: SqliteStore, topic: str) -> Iterator[None]:
    """Another process sends datagrams to the doorbell of a store without end, as fast as it can."""
    words = [sys.executable, "-c", FLOOD, store._notifier.hang().partition("#")[0], topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as flood:
        try:
            assert flood.stdout is not None
            flood.stdout.readline()
            yield
        finally:
            flood.kill()


FLOOD = """
import socket, sys
bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
where = "\\0" + sys.argv[1][1:] if sys.argv[1].startswith("@") else sys.argv[1]
print("ready", flush=True)
while True:
    for nonsense in (sys.argv[2].encode(), b"x", b"\\n" * 60000):
        try:
            bell.sendto(nonsense, where)
        except OSError:
            pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="addresses have another form")
def test_nothing_is_sent_to_an_address_that_is_not_a_doorbells(tmp_path: Path) -> None:
    """Whoever shares the file may write any address into a row, and root may be the one who rings."""
    bell, stranger, named = Doorbell(), *(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    try:
        stranger.bind(str(tmp_path / "notify"))
        named.bind("\0systemd/notify")
        key = bell.hang().partition("#")[2]
        for address in (
            str(tmp_path / "notify"),
            f"{tmp_path}/notify#{key}",
            "@systemd/notify",
            "x",
            "@",
            "#",
        ):
            bell.ring(address, ["READY=1"])
        bell.ring(f"@systemd/notify#{key}", ["READY=1"])
        for other in (stranger, named):
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)
        bell.ring(bell.address, ["c"])
        assert bell.receive(PATIENCE) == ["c"]
    finally:
        bell.take_down()
        stranger.close()
        named.close()


def test_rings_that_are_meant_for_somebody_are_no_flood(opened: Open) -> None:
    store = opened()
    waiters = [Waiter(threading.Event(), f"c{number}", resource="r") for number in range(100)]
    for waiter in waiters:
        store._notifier.listen(waiter)
    for waiter in waiters:
        opened()._notifier.doorbell.ring(store._notifier.hang(), [*waiter.topics])
        eventually(waiter.signal.is_set)
    assert store._notifier._deaf_until == 0.0


# ---- when something cannot be had ---------------------------------------------------------------------


def test_a_thread_that_cannot_be_started_is_started_for_the_next_who_waits(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StoreUnavailable, match="can't start new thread"):
            store._notifier.listen(Waiter(threading.Event(), "cx"))  # which cannot read for itself
    task = Waiter(threading.Event(), "cx")
    store._notifier.listen(task)
    assert store._notifier._thread is not None
    with waiting(lambda: store.watch_register("n", 0, PATIENCE)) as took:
        eventually(listening(store))
        drive(opened().compare_and_set("n", 0, "v", "1"))
    assert took[0] < SOON


def test_one_failed_thread_does_not_keep_a_client_from_waiting(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    failed: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "interlock-doorbell" and not failed:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with interlock.connect(f"sqlite:///{path}") as holder, interlock.connect(f"sqlite:///{path}") as client:
        leases = [holder.lock(name).acquire() for name in "rs"]
        got: list[object] = []
        waiters = [
            threading.Thread(target=lambda name=name: got.append(client.lock(name).acquire(timeout=PATIENCE)))
            for name in "rs"
        ]
        for waiter in waiters:  # the second of them cannot read for itself
            waiter.start()
        eventually(lambda: failed and all(len(client.inspect(name).waiters) == 1 for name in "rs"))
        for lease in leases:
            assert lease
            lease.release()
        for waiter in waiters:
            waiter.join(PATIENCE)
        assert len(got) == 2
        assert all(got)


def test_a_socket_that_cannot_be_had_leaves_it_to_the_net(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    holder, waiter = opened(), opened()
    stand(holder, claim(id="a"))
    with monkeypatch.context() as patch:
        patch.setattr(doorbell, "_new_socket", refuse)
        (busy,) = stand(waiter, claim(id="b"))
        assert isinstance(busy, Busy)
        drive(holder.release("r", "a"))
    assert isinstance(drive(waiter.claim(claim(id="b"))), Granted)


def test_a_waiter_that_went_without_a_word_is_forgotten(opened: Open) -> None:
    """An interrupt can strike before it says that it no longer listens."""
    store = opened()
    waiter = Waiter(threading.Event(), "cgone", resource="r")
    store._notifier.listen(waiter)
    assert store._notifier._waiters
    del waiter
    eventually(lambda: not store._notifier._waiters.topics)


# ---- on time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.0, 0.05, 0.3])
def test_a_wait_is_never_late(opened: Open, timeout: float) -> None:
    store = opened()
    stand(store, claim(id="a"))
    (busy,) = stand(store, claim(id="b"))
    waits = [
        lambda: store.wait(claim(id="b"), busy, timeout),
        lambda: store.wait(claim(id="a"), None, timeout),
        lambda: store.watch_register("n", 0, timeout),
        lambda: store.watch("idle", drive(store.inspect("idle")), timeout),
    ]
    for wait in waits:
        began = time.monotonic()
        with at_most(timeout + 0.25):
            drive(wait())
        assert time.monotonic() - began >= timeout - 0.01


# ---- exactly those who should ------------------------------------------------------------------------


def test_a_release_rings_only_the_next_of_a_mutex(opened: Open) -> None:
    store = opened()
    stand(store, *(claim(id=id) for id in "abcd"))
    drive(store.release("r", "a"))
    assert [rung(store, id) for id in "bcd"] == [True, False, False]


def test_a_writers_release_rings_all_readers_up_to_the_next_writer(opened: Open) -> None:
    store = opened()
    widths = {"w1": 10, "r1": 1, "r2": 1, "w2": 10, "r3": 1}
    stand(store, *(claim(id=id, permits=width, capacity=10) for id, width in widths.items()))
    drive(store.release("r", "w1"))
    assert {id: rung(store, id) for id in ("r1", "r2", "w2", "r3")} == {
        "r1": True,
        "r2": True,
        "w2": False,
        "r3": False,
    }


def test_a_shrinking_writer_rings_the_readers_behind_it(opened: Open) -> None:
    store = opened()
    stand(
        store, *(claim(id=id, permits=width, capacity=10) for id, width in {"w": 10, "r": 1, "x": 10}.items())
    )
    drive(store.renew([Renewal("r", "w", 30.0, permits=1)]))
    assert [rung(store, id) for id in ("r", "x")] == [True, False]


def test_who_watched_a_waiter_that_leaves_is_told_to_look_again(opened: Open) -> None:
    """It was told when that waiter's place lapses; the holder it must watch now may lapse sooner."""
    store = opened()
    stand(store, claim(id="a", ttl=1.0), claim(id="b"), claim(id="c"), claim(id="d"))
    drive(store.release("r", "b"))
    assert [rung(store, id) for id in "cd"] == [True, False]
    (again,) = stand(store, claim(id="c"))
    assert isinstance(again, Busy)
    assert again.retry_after <= 1.0


def test_the_new_first_of_a_semaphore_is_told_to_watch_the_holders(opened: Open) -> None:
    store = opened()
    stand(store, *(claim(id=id, capacity=2) for id in "abcde"))
    drive(store.release("r", "a"))
    assert [rung(store, id) for id in "cde"] == [True, True, False]


def test_who_watched_a_holder_that_lingers_is_told_its_nearer_end(opened: Open) -> None:
    store = opened()
    stand(store, *(claim(id=id) for id in "abc"))
    drive(store.release("r", "a", linger=0.5))
    assert [rung(store, id) for id in "bc"] == [True, False]
    (again,) = stand(store, claim(id="b"))
    assert isinstance(again, Busy)
    assert again.retry_after <= 0.5


def test_a_lapse_that_one_waiter_notices_lets_in_all_whom_it_concerns(opened: Open) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    stand(store, claim(id="a", capacity=2, ttl=1.0), claim(id="b", capacity=2, ttl=1.0))
    stand(store, claim(id="c", capacity=2), claim(id="d", capacity=2), claim(id="e", capacity=2))
    manual.now += 2.0
    assert isinstance(drive(store.claim(claim(id="c", capacity=2))), Granted)
    assert [rung(store, id) for id in "de"] == [True, True]  # d is in; e is first now
    assert isinstance(drive(store.claim(claim(id="d", capacity=2))), Granted)
    assert isinstance(drive(store.claim(claim(id="e", capacity=2))), Busy)


def test_a_newcomer_that_notices_a_lapse_rings_those_it_lets_in(opened: Open) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    stand(store, claim(id="a", ttl=1.0), claim(id="b"), claim(id="c"))
    manual.now += 2.0
    stand(store, claim(id="d"))
    assert [rung(store, id) for id in "bcd"] == [True, False, False]


def test_a_lapse_that_was_swept_away_unnoticed_leaves_nobody_behind(opened: Open) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    stand(store, claim(id="a", capacity=2, ttl=1.0), claim(id="b", capacity=2, ttl=1.0))
    stand(store, claim(id="c", capacity=2), claim(id="d", capacity=2), claim(id="e", capacity=2))
    manual.now += 3.0
    stand(store, claim("elsewhere", "x"))  # the writer whose turn it is to sweep
    assert [standing.id for standing in drive(store.inspect("r")).holders] == ["c", "d"]
    assert isinstance(drive(store.claim(claim(id="c", capacity=2))), Granted)
    assert [rung(store, id) for id in "de"] == [True, True]


# ---- what it costs -----------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_1000_waiters_on_1000_resources_use_one_socket_one_thread_and_two_connections(opened: Open) -> None:
    holder, store = opened(), opened()
    stand(holder, *(claim(f"r{n}", f"h{n}") for n in range(1000)))
    stand(store, claim("r0", "w0"))
    before = descriptors(), threading.active_count()
    waiters: list[Waiter] = []
    for n in range(1000):
        stand(store, claim(f"r{n}", f"w{n}"))
        waiters.append(Waiter(threading.Event(), f"cw{n}", resource=f"r{n}"))
        store._notifier.listen(waiters[-1])
    eventually(lambda: store._notifier._database.opened > 0)
    assert descriptors() - before[0] <= 5  # a second connection: the file, its log, its shared memory
    assert threading.active_count() - before[1] <= 1
    for n in range(1000):
        drive(holder.release(f"r{n}", f"h{n}"))
    eventually(lambda: all(waiter.signal.is_set() for waiter in waiters))
    for waiter in waiters:
        store._notifier.forget(waiter)


def test_the_listener_ends_when_nobody_has_waited_for_a_while(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "IDLE_STOP_S", 0.1)
    store = opened()
    drive(store.watch_register("n", 0, 0.01))
    eventually(lambda: store._notifier._thread is None)
    with waiting(lambda: store.watch_register("n", 0, 30.0)) as took:  # and starts again
        eventually(listening(store))
        drive(opened().compare_and_set("n", 0, "v", "1"))
    assert took[0] < 1.0


def test_closing_ends_the_listener_and_gives_back_every_descriptor(opened: Open) -> None:
    before = threading.active_count()
    store = opened()
    drive(store.watch_register("n", 0, 0.01))
    drive(store.close())
    assert threading.active_count() == before
    assert not store._notifier.bell


def test_who_begins_to_listen_during_a_look_is_not_passed_over(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before the change and listened before the look was over: nothing else would ever wake it."""
    writer, store = opened(), opened()
    heard, read = threading.Event(), store._notifier._database.read

    waiter = Waiter(heard, "rn", change_read=ChangeRead(steps.READ, ("n",), lambda found: True))

    def late(*args: Any) -> Any:
        store._notifier._waiters.add(waiter, "rn")
        drive(writer.compare_and_set("n", 0, "v", "1"))
        return read(*args)

    monkeypatch.setattr(store._notifier._database, "read", late)
    store._notifier._poll()
    assert heard.is_set()
