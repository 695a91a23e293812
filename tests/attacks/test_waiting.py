"""Attacks on waiting: a store that cannot wait, and tasks that end with the acquire they were made of."""

from __future__ import annotations

import asyncio
import time

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Claim
from interlock.testing.lag import at_most, stretched
from tests.attacks.stage import AsyncStage, Stage, raises, space
from tests.patience import PATIENCE


def test_a_store_that_answers_but_cannot_wait_is_not_asked_without_end() -> None:
    shared = space()
    holder, waiter = Stage(shared=shared), Stage(shared=shared)
    with holder.client.lock("x"):
        waiter.store.before["wait"] = raises(StoreUnavailable("the subscription broke"))
        assert waiter.client.lock("x").acquire(timeout=0.5) is None
    assert waiter.store.asked.count("claim") < 50
    waiter.client.close()
    holder.client.close()


def test_a_lease_taken_by_a_task_made_of_its_acquire_is_renewed() -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            ttl = stretched(0.2)
            lock, semaphore = client.lock("x", ttl=ttl), client.semaphore("s", 2, ttl=ttl)
            election, several = client.election("e", ttl=ttl), client.multilock(["a", "b"], ttl=ttl)
            lease, permit = await asyncio.gather(lock.acquire(), semaphore.acquire())
            crown = await asyncio.wait_for(election.campaign("me"), PATIENCE)
            both = await asyncio.create_task(several.acquire())
            assert lease
            assert permit
            assert crown
            assert both
            await asyncio.sleep(2.5 * ttl)
            for one in (lease, permit, crown, *both.leases):
                assert one.state is interlock.State.HELD
            await lock.release()
            await semaphore.release()
            await election.resign()
            await several.release()
            assert not await lock.locked()

    asyncio.run(main())


def test_the_locks_of_one_call_share_one_grace() -> None:
    """Each of a multilock's is asked for after the other: on a slow store the call is late once, not once for each."""
    stage = Stage()

    def slow(claim: Claim, timeout: float) -> None:
        time.sleep(min(timeout, 0.1))
        if timeout < 0.1:
            raise StoreUnavailable("no answer in time")

    stage.store.before["claim"] = slow
    with at_most(0.4):
        with pytest.raises(StoreUnavailable):
            stage.client.multilock(list("abcdef")).acquire(timeout=0.05)
    stage.store.before.clear()
    assert stage.client.multilock(list("abcdef")).acquire(timeout=0), "something was left behind"
    stage.client.close()


def test_what_was_never_sent_is_not_taken_back() -> None:
    """A server that was never reached holds nothing of ours: to say that it does would frighten whoever reads it."""
    stage = Stage()
    stage.store.before["claim"] = raises(Unreached("nobody listens there"))
    with pytest.raises(StoreUnavailable):
        stage.client.lock("x").acquire()
    assert "release" not in stage.store.asked
    stage.client.close()


def test_what_may_have_arrived_once_is_taken_back_though_later_tries_never_did() -> None:
    stage = Stage()
    failures = iter([StoreUnavailable("no answer"), *[Unreached("nobody listens there")] * 9])

    def fail(*args: object) -> None:
        raise next(failures)

    stage.store.before["claim"] = fail
    with pytest.raises(StoreUnavailable):
        stage.client.lock("x").acquire()
    assert "release" in stage.store.asked
    stage.client.close()


def test_a_wait_that_times_out_asks_for_a_few_holders_only() -> None:
    """To read a whole queue would cost the server more the longer it is, at every timeout."""
    stage, limits = Stage(), []
    stage.store.before["inspect"] = lambda *args, **options: limits.append(options.get("limit"))
    with stage.client.semaphore("x", 1):
        with pytest.raises(interlock.AcquireTimeout), stage.client.semaphore("x", 1, timeout=0.01):
            pass
    assert limits
    assert all(limit is not None and limit <= 32 for limit in limits)
    stage.client.close()


def late(stage: Stage | AsyncStage, answers: int) -> None:
    """The first answers take most of a ttl of 1 s to arrive, as that of a server to which a slow connection is made first."""

    def slow(claim: Claim, timeout: float) -> None:
        if stage.store.asked.count("claim") <= answers:
            time.sleep(0.6)

    stage.store.after["claim"] = slow


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_a_grant_that_is_used_up_on_arrival_does_not_look_like_a_lock_that_is_taken(timeout: float) -> None:
    stage = Stage(ttl=1)
    late(stage, 1)
    assert stage.client.lock("x").acquire(timeout=timeout)
    stage.client.close()


def test_nor_does_it_in_a_multilock() -> None:
    stage = Stage(ttl=1)
    late(stage, 1)
    assert stage.client.multilock(["x", "y"]).acquire(timeout=0)
    stage.client.close()


def test_nor_does_a_job_that_nobody_has_skip() -> None:
    stage = Stage(ttl=1)
    late(stage, 1)
    assert stage.client.once("x")(lambda: "ran")() == "ran"
    stage.client.close()


def test_nor_does_it_for_a_task() -> None:
    async def main() -> None:
        stage = AsyncStage(ttl=1)
        late(stage, 1)
        assert await stage.client.lock("x").acquire(blocking=False)
        await stage.client.close()

    asyncio.run(main())


def test_a_store_whose_answers_all_come_too_late_is_unavailable() -> None:
    stage = Stage(ttl=1)
    late(stage, 100)
    with pytest.raises(StoreUnavailable, match=r"^x: .*half of its ttl of 1\.0 s.*choose a longer ttl$"):
        stage.client.lock("x").acquire(blocking=False)
    with pytest.raises(StoreUnavailable):
        stage.client.once("x")(lambda: "ran")()
    stage.store.after.clear()
    assert stage.client.lock("x").acquire(blocking=False), "something was left behind"
    stage.client.close()


def test_a_lock_that_another_took_since_the_late_answer_is_taken() -> None:
    shared = space()
    stage, other = Stage(ttl=1, shared=shared), Stage(shared=shared)

    def slow(claim: Claim, timeout: float) -> None:
        if stage.store.asked.count("claim") == 1:
            assert other.client.lock("x").acquire(timeout=PATIENCE), "the grant has not lapsed"

    stage.store.after["claim"] = slow
    assert stage.client.lock("x").acquire(blocking=False) is None
    stage.client.close()
    other.client.close()
