"""After a loss: nothing piles up, nobody gives back another's lease by mistake, and everybody can begin anew."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.errors import LeaseLost, NotHeld
from interlock.model import Gone
from tests.attacks.stage import eventually, fresh

KINDS = ["lock", "rlock", "write", "read", "semaphore"]


def made(client: Any, kind: str, **options: Any) -> Any:
    if kind in ("read", "write"):
        return getattr(client.rwlock("x", **options), kind)()
    return (
        client.semaphore("x", 3, **options) if kind == "semaphore" else getattr(client, kind)("x", **options)
    )


def lose(client: interlock.Client, lease: interlock.Lease) -> None:
    """Evicted, and told by the store."""
    client.evict("x", id=lease._claim.id, reason="drill")
    with pytest.raises(LeaseLost):
        lease.renew()


def alive(leases: list[weakref.ref[Any]]) -> int:
    gc.collect()
    return sum(lease() is not None for lease in leases)


@pytest.mark.parametrize("kind", KINDS)
def test_lost_leases_do_not_pile_up_in_their_lock(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)
        seen: list[weakref.ref[Any]] = []

        def take_and_lose() -> None:
            lease = lock.acquire()
            seen.append(weakref.ref(lease))
            lose(client, lease)

        for _ in range(200):
            take_and_lose()
        assert alive(seen) <= 3
        assert lock.acquire(timeout=1)
        lock.release()


def test_every_release_of_what_one_owner_lost_in_a_row_hears_of_the_loss() -> None:
    with interlock.connect(fresh()) as client:
        lock = client.lock("x")
        for _ in range(3):
            lease = lock.acquire()
            assert lease
            lose(client, lease)
        for _ in range(3):
            with pytest.raises(LeaseLost):
                lock.release()
        with pytest.raises(NotHeld, match="unlocked"):
            lock.release()


def test_lost_leases_of_tasks_that_have_ended_do_not_pile_up() -> None:
    async def main() -> int:
        async with aio.connect(fresh()) as client:
            lock = client.lock("x")
            seen: list[weakref.ref[Any]] = []

            async def take_and_lose() -> None:
                lease = await lock.acquire()
                assert lease is not None
                seen.append(weakref.ref(lease))
                await client.evict("x", reason="drill")
                with pytest.raises(LeaseLost):
                    await lease.renew()

            for _ in range(200):
                await asyncio.create_task(take_and_lose())
            return alive(seen)

    assert asyncio.run(main()) <= 4


def test_who_has_lost_twice_gives_back_nobody_elses_lease() -> None:
    with interlock.connect(fresh()) as client:
        lock = client.lock("x")
        for _ in range(2):
            lease = lock.acquire()
            assert lease is not None
            lose(client, lease)
        others: list[interlock.Lease] = []
        done = threading.Event()

        def hold() -> None:
            with lock as held:
                others.append(held)
                done.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        eventually(lambda: others)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                lock.release()
        others[0].check()
        done.set()
        thread.join(10)
        with pytest.raises(NotHeld, match="unlocked"):
            lock.release()


def test_what_was_taken_last_is_given_back_first_though_another_was_lost() -> None:
    with interlock.connect(fresh()) as client:
        semaphore = client.bounded_semaphore("x", 4)
        leases = [lease for _ in range(3) if (lease := semaphore.acquire())]
        first, middle, last = leases
        lose(client, middle)
        semaphore.release()
        assert (first.state, last.state) == (interlock.State.HELD, interlock.State.RELEASED)
        with pytest.raises(LeaseLost):
            semaphore.release()
        first.check()
        semaphore.release()
        with pytest.raises(ValueError, match="too many"):
            semaphore.release()


def test_permits_that_were_lost_in_a_row_are_given_back_as_often_as_they_were_taken() -> None:
    with interlock.connect(fresh()) as client:
        semaphore = client.bounded_semaphore("x", 6)
        held = semaphore.acquire()
        for permits in (1, 2, 1):
            lease = semaphore.acquire(permits=permits)
            assert lease
            lose(client, lease)
        with pytest.raises(LeaseLost):
            semaphore.release(3)
        assert held
        held.check()
        with pytest.raises(LeaseLost):
            semaphore.release(1)
        held.check()
        semaphore.release()
        with pytest.raises(ValueError, match="too many"):
            semaphore.release()


REENTRANT = ["rlock", "write", "read"]


@pytest.mark.parametrize("kind", REENTRANT)
def test_nobody_enters_again_what_was_lost_but_who_has_been_told_begins_anew(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)
        lease = lock.acquire()
        client.evict("x", reason="drill")
        lease._refuse(Gone(True, "drill"))  # as the keeper finds out, behind our back
        with pytest.raises(LeaseLost):
            lock.acquire()  # whoever called it may believe that the outer body still holds
        again = lock.acquire(timeout=1)
        assert again.token > lease.token
        assert lock.owned()
        lock.release()
        assert not client.inspect("x").standings


@pytest.mark.parametrize("kind", REENTRANT)
def test_who_met_the_loss_at_a_check_begins_anew_at_once(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)
        lease = lock.acquire()
        lose(client, lease)  # renew() raised it
        with lock as again:
            assert again.token > lease.token
        assert not client.inspect("x").standings


@pytest.mark.parametrize("kind", REENTRANT)
def test_an_outer_body_that_was_lost_does_not_give_back_what_was_taken_anew(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)
        taken: list[Any] = []
        with pytest.raises(LeaseLost) as told:
            with lock as body:
                lose(client, body)
                taken += [body, lock.acquire(timeout=1)]
        outer, new = taken
        assert told.value.token == outer.token
        assert new.state is interlock.State.HELD
        assert lock.owned()
        lock.release()
        assert not client.inspect("x").standings


def test_a_reader_whose_lease_was_lost_may_become_a_writer() -> None:
    with interlock.connect(fresh()) as client:
        page = client.rwlock("x")
        lease = page.read().acquire()
        assert lease is not None
        lose(client, lease)
        assert page.write().acquire(timeout=1)
        page.write().release()


@pytest.mark.parametrize("kind", REENTRANT)
def test_who_goes_on_believing_hears_of_the_loss_when_it_releases(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)
        lease = lock.acquire()
        lock.acquire()
        lose(client, lease)
        lock.release()  # the inner one: the outer body is told
        with pytest.raises(LeaseLost):
            lock.release()
        with pytest.raises(NotHeld, match="does not hold"):
            lock.release()
        assert lock.acquire(timeout=1)
        lock.release()


# ---- a body that ends on another thread --------------------------------------------------------


@pytest.mark.parametrize("kind", REENTRANT)
def test_who_enters_again_while_another_thread_ends_the_last_body_takes_the_lock_anew(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = made(client, kind)

        def work() -> Iterator[int]:
            with lock:
                yield client.inspect("x").holders[0].token

        working = work()
        token = next(working)
        attempt = lock._core.attempt()  # has found that it may enter again; and now the body ends elsewhere
        ending = threading.Thread(target=lambda: next(working, None))
        ending.start()
        ending.join(10)
        lease = drive(attempt.run())
        assert lease.token > token
        lease.check()
        assert lock.owned()
        lock.release()
        assert not client.inspect("x").standings


def test_bodies_that_end_on_other_threads_are_each_counted_once() -> None:
    with interlock.connect(fresh()) as client:
        lock = client.rlock("x")

        def work() -> Iterator[int]:
            with lock:
                yield 1

        for _ in range(200):
            bodies = [work() for _ in range(4)]
            for body in bodies:
                next(body)
            together = threading.Barrier(4)

            def end(body: Iterator[int], together: threading.Barrier = together) -> None:
                together.wait(10)
                next(body, None)

            threads = [threading.Thread(target=end, args=(body,)) for body in bodies]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert not lock.owned()
            assert not client.inspect("x").standings
