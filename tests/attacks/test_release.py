"""Attacks on giving back: what is released is what is held, all of it, and nothing that is lost comes back."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import suppress

import pytest

import interlock
from interlock import events
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.memory import MemoryStore
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most, stretched
from tests.attacks.stage import Stage, eventually, fresh, raises, space
from tests.patience import PATIENCE


def test_a_semaphore_gives_back_the_rest_when_one_of_its_leases_was_lost() -> None:
    stage = Stage()
    semaphore = stage.client.semaphore("x", 3)
    first, second = semaphore.acquire(), semaphore.acquire()
    assert first
    assert second
    stage.client.evict("x", id=second._claim.id, reason="attack")
    with pytest.raises(interlock.LeaseLost):
        second.renew()
    with pytest.raises(interlock.LeaseLost):
        semaphore.release(2)
    assert first.state is interlock.State.RELEASED
    assert not stage.client.inspect("x").holders
    stage.client.close()


def test_a_semaphore_does_not_count_what_it_has_lost() -> None:
    stage = Stage()
    semaphore = stage.client.bounded_semaphore("x", 2)
    lease = semaphore.acquire()
    assert lease
    stage.client.evict("x", reason="attack")
    with pytest.raises(interlock.LeaseLost):
        lease.renew()
    assert "value=2/2" in repr(semaphore)
    stage.client.close()


def test_who_took_none_releases_one_that_is_held_not_one_that_was_lost() -> None:
    stage = Stage()
    lock = stage.client.lock("x", ttl=0.05, renew=False)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    time.sleep(0.06)  # it runs out, unreleased
    holder = threading.Thread(target=lock.acquire)
    lock._core.terms.ttl = 30.0
    holder.start()
    holder.join()
    lock.release()
    assert not stage.client.inspect("x").holders
    stage.client.close()


def test_who_has_lost_an_election_does_not_prolong_it_by_proclaiming() -> None:
    stage = Stage()
    election = stage.client.election("x", ttl=30)
    lease = election.campaign("me")
    assert lease
    lease._deadline = 0.0  # its own clock says that it is over
    with pytest.raises(interlock.LeaseLost):
        election.proclaim("still me")
    assert "renew" not in stage.store.asked
    stage.client.close()


def test_a_waiter_that_was_answered_before_the_queue_moved_does_not_sleep_through_the_next_lapse() -> None:
    runtime = Threads()
    store = MemoryStore(space(), runtime)
    assert isinstance(drive(store.claim(Claim("x", "dead", 0.2))), Granted)
    drive(store.claim(Claim("x", "leaves", 30.0, place_ttl=30.0)))
    waiter = Claim("x", "waits", 30.0, place_ttl=30.0)
    busy = drive(store.claim(waiter))
    assert isinstance(busy, Busy)
    assert busy.retry_after > 10
    drive(store.release("x", "leaves"))  # after the answer, before the wait
    with at_most(1.0):
        drive(store.wait(waiter, busy, 9.0))
    assert isinstance(drive(store.claim(waiter)), Busy | Granted)


def test_a_thread_that_died_in_an_rlock_leaves_nothing_in_its_client() -> None:
    stage = Stage()

    def enter_and_die() -> None:
        rlock = stage.client.rlock("x", ttl=0.05)
        for _ in range(3):
            thread = threading.Thread(target=rlock.acquire)
            thread.start()
            thread.join()

    enter_and_die()
    eventually(lambda: not stage.core.leases)
    gc.collect()
    assert not len(stage.core.entries)
    stage.client.close()


def test_a_writer_whose_downgrade_got_no_answer_lets_readers_in_all_the_same() -> None:
    stage = Stage(ttl=stretched(0.6))
    rwlock = stage.client.rwlock("x")
    rwlock.write().acquire()
    rwlock.read().acquire()
    stage.store.before["renew"] = raises(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        rwlock.write().release()
    stage.store.before.clear()
    reader = Stage(shared=stage.store.inner._space)
    assert reader.client.rwlock("x").read().acquire(timeout=PATIENCE)
    rwlock.read().release()
    reader.client.close()
    stage.client.close()


def test_whoever_waits_gets_in_when_max_hold_is_over() -> None:
    stage = Stage(ttl=30)
    assert stage.client.lock("x", max_hold=0.2).acquire()
    other = Stage(shared=stage.store.inner._space)
    assert other.client.lock("x").acquire(timeout=PATIENCE)
    other.client.close()
    stage.client.close()


def test_only_a_release_that_finds_nothing_asks_why() -> None:
    stage = Stage()
    with stage.client.lock("x"):
        pass
    assert "renew" not in stage.store.asked
    with pytest.raises(LeaseLost) as raised, stage.client.lock("x"):
        stage.client.evict("x", reason="drill")
    assert (raised.value.cause, raised.value.reason) == ("evicted", "drill")
    assert stage.store.asked.count("renew") == 1
    assert [(event.cause, event.reason) for event in stage.events if isinstance(event, events.Lost)] == [
        ("evicted", "drill")
    ]
    stage.client.close()


def test_a_store_that_does_not_say_why_does_not_hide_the_loss() -> None:
    stage = Stage()
    stage.store.before["renew"] = raises(StoreUnavailable("no answer"))
    with pytest.raises(LeaseLost) as raised, stage.client.lock("x"):
        stage.client.evict("x", reason="drill")
    assert (raised.value.cause, raised.value.reason) == ("refused", "")
    stage.client.close()


@pytest.mark.parametrize("outage", [0.5, 1.5])
def test_an_outage_at_the_release_does_not_prolong_min_hold(outage: float) -> None:
    """It counts from the grant, however often the release is sent, and by whom."""
    min_hold, ends = 60.0, list[float]()
    with interlock.connect(fresh()) as client:
        store = client._core.store
        release, now = store.release, client._core.runtime.now

        async def hang(resource: str, id: str, linger: float = 0.0, timeout: float = 5.0) -> bool:
            ends.append(now() + linger)
            if now() < began + outage:
                time.sleep(0.2)
                raise interlock.StoreUnavailable("it hangs")
            return await release(resource, id, linger, timeout)

        store.release = hang  # type: ignore[method-assign]
        lease = client.lock("x", min_hold=min_hold).acquire()
        assert lease
        began = now()
        with suppress(interlock.StoreUnavailable):
            lease.release()
        eventually(lambda: not client._core.keeper.pending(), PATIENCE)
        assert len(ends) > 2
        assert max(ends) < min(ends) + 0.1, ends
        (left,) = client.inspect("x").standings
        assert left.lapses_in < began + min_hold - now() + 0.1
