"""The owner of a lease is whoever the user thinks it is; and when it has ended, everybody hears why the lease did."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import interlock
from interlock import aio, events
from interlock.testing.lag import stretched
from tests.attacks.stage import eventually, fresh
from tests.patience import PATIENCE

TTL = 0.4

Wrapper = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


async def in_a_group(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(coroutine)
    return task.result()


async def gathered(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return (await asyncio.gather(coroutine))[0]


async def in_a_task(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.create_task(coroutine)


WRAPPERS: dict[str, Wrapper] = {
    "wait_for": lambda coroutine: asyncio.wait_for(coroutine, PATIENCE),
    "gather": gathered,
    "create_task": in_a_task,
    "shield": lambda coroutine: asyncio.shield(coroutine),
    "TaskGroup": in_a_group,
}


def made(client: Any, kind: str, name: str = "x") -> Any:
    if kind in ("read", "write"):
        return getattr(client.rwlock(name), kind)()
    if kind == "multilock":
        return client.multilock([name, name + "y"])
    return client.semaphore(name, 5) if kind == "semaphore" else getattr(client, kind)(name)


KINDS = ["lock", "rlock", "read", "write", "semaphore", "multilock", "condition"]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_calls_acquire_owns_what_a_task_of_asyncio_takes_for_it(kind: str, wrap: Wrapper) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            lock = made(client, kind)
            lease = await wrap(lock.acquire())
            assert lock._lock.owned() if kind == "condition" else lock.owned()
            await wrap(lock.release())
            with pytest.raises(interlock.NotHeld):
                lease.check()
            assert not (await client.inspect("x")).standings

    asyncio.run(main())


def test_what_a_task_of_asyncio_took_is_renewed_for_its_caller() -> None:
    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:
            leases: list[Any] = []
            for name, wrap in WRAPPERS.items():
                leases += [await wrap(made(client, kind, f"{name}-{kind}").acquire()) for kind in KINDS]
                leases.append(await wrap(client.election(name).campaign("me")))
            await asyncio.sleep(2 * ttl)
            for lease in leases:  # though the tasks that took them have ended
                lease.check()

    asyncio.run(main())


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_candidate_that_campaigns_in_a_task_of_asyncio_leads(wrap: Wrapper) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            election = client.election("x")
            lease = await wrap(election.campaign("me"))
            assert election.leading()
            await wrap(election.resign())
            with pytest.raises(interlock.NotHeld):
                lease.check()

    asyncio.run(main())


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_task_of_asyncio_releases_the_callers_lease_and_nobody_elses(wrap: Wrapper) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            semaphore = client.semaphore("x", 2)
            release = asyncio.Event()

            async def other() -> bool:
                lease = await semaphore.acquire()
                assert lease
                taken.set()
                await release.wait()
                held = lease.state is interlock.State.HELD
                await semaphore.release()
                return held

            taken = asyncio.Event()
            task = asyncio.create_task(other())
            await taken.wait()  # first, so that its lease is the oldest
            await wrap(semaphore.acquire())
            await wrap(semaphore.release())
            release.set()
            assert await task

    asyncio.run(main())


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_a_task_of_asyncio_waits_on_a_condition_for_its_caller(kind: str, wrap: Wrapper) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            lock = getattr(client, kind)("x")
            condition = client.condition("c", lock)

            async def notify() -> None:
                async with condition:
                    await wrap(condition.notify_all())

            async with condition:
                notifying = asyncio.create_task(notify())
                assert await wrap(condition.wait(10)) is True
                assert lock.owned()
                await wrap(condition.wait_for(lambda: True))
            await notifying
            assert not (await client.inspect("x")).standings

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["lock", "rlock"])
@pytest.mark.parametrize("notified", [False, True])
def test_a_wait_that_outlives_the_body_it_was_begun_in_leaves_no_lock_behind(
    kind: str, notified: bool
) -> None:
    """As wait_for on Python 3.11 does when its caller is cancelled twice."""

    async def main() -> None:
        async with aio.connect(fresh()) as client:
            lock = getattr(client, kind)("x")
            condition = client.condition("c", lock)
            async with condition:
                waiting = asyncio.create_task(condition.wait())
                async with asyncio.timeout(10):
                    while await lock.locked():
                        await asyncio.sleep(0)
            if notified:
                async with condition:
                    await condition.notify()
            else:
                waiting.cancel()
            await asyncio.wait([waiting], timeout=10)
            assert waiting.done()
            assert not await client._core.store.scan("", "", 10)
            assert not lock.owned()
            async with lock:
                pass

    asyncio.run(main())


def test_a_reader_that_wants_to_write_is_told_in_a_task_of_asyncio_too() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            page = client.rwlock("x")
            async with page.read():
                for name, wrap in WRAPPERS.items():
                    if name == "TaskGroup":  # wraps what is raised, too
                        with pytest.raises(ExceptionGroup) as told:
                            await wrap(page.write().acquire())
                        assert told.value.subgroup(interlock.WouldDeadlock)
                    else:
                        with pytest.raises(interlock.WouldDeadlock, match="cannot become a writer"):
                            await wrap(page.write().acquire())

    asyncio.run(main())


def test_a_service_that_is_started_under_wait_for_holds_what_it_took() -> None:
    """On Python 3.11 wait_for makes a task of it, from 3.12 on it does not: the owner is the same."""

    class Service:
        def __init__(self, lock: aio.RLock) -> None:
            self._lock = lock

        async def start(self) -> None:
            self.lease = await self._lock.acquire()

    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:
            lock = client.rlock("x")
            service = Service(lock)
            await asyncio.wait_for(service.start(), PATIENCE)
            await asyncio.sleep(2 * ttl)
            assert service.lease is not None
            service.lease.check()
            assert await asyncio.wait_for(lock.acquire(), PATIENCE)  # again: the same owner
            await lock.release()
            await asyncio.wait_for(asyncio.wait_for(lock.release(), 10), PATIENCE)
            assert not (await client.inspect("x")).standings

    asyncio.run(main())


def test_a_thread_that_asks_a_loop_for_a_lock_owns_it() -> None:
    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:
            lock, loop = client.lock("x"), asyncio.get_running_loop()

            def work() -> None:
                lease = asyncio.run_coroutine_threadsafe(lock.acquire(), loop).result(10)
                assert lease is not None
                assert lock.owned()
                threading.Event().wait(2 * ttl)
                lease.check()
                asyncio.run_coroutine_threadsafe(lock.release(), loop).result(10)

            await asyncio.to_thread(work)
            assert not await lock.locked()

    asyncio.run(main())


def test_a_lease_that_was_granted_after_its_caller_had_ended_is_kept_for_whoever_gets_it() -> None:
    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:
            lock = client.lock("x")
            await lock.acquire()

            async def begin() -> asyncio.Task[aio.Lease | None]:
                return asyncio.create_task(lock.acquire())

            acquiring = await asyncio.create_task(begin())
            async with asyncio.timeout(PATIENCE):
                while not (await client.inspect("x")).waiters:
                    await asyncio.sleep(0.001)
            await lock.release()
            lease = await acquiring
            assert lease is not None
            await asyncio.sleep(2 * ttl)
            lease.check()
            await lease.release()

    asyncio.run(main())


def test_a_body_under_wait_for_meets_the_loss_itself() -> None:
    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:

            async def body() -> None:
                async with client.lock("x"):
                    await client.evict("x", reason="drill")
                    await asyncio.sleep(60)

            with pytest.raises(interlock.LeaseLost, match="drill"):
                await asyncio.wait_for(body(), PATIENCE)
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()

    asyncio.run(main())


def test_the_loss_cancels_the_task_whose_body_it_is_and_not_the_owner() -> None:
    async def main() -> None:
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl) as client:
            lease = await client.lock("x").acquire()
            assert lease is not None

            async def body() -> None:
                async with lease:
                    await client.evict("x", reason="drill")
                    await asyncio.sleep(60)

            with pytest.raises(interlock.LeaseLost, match="drill"):
                await asyncio.create_task(body())

    asyncio.run(main())


# ---- the owner ends ------------------------------------------------------------------------


def test_a_release_that_a_task_of_its_own_awaits_means_the_lease_of_its_caller() -> None:
    """The task has taken nothing, so that it would give back what another holds through the same object."""

    async def main() -> None:
        async with aio.connect(fresh()) as client:
            lock = client.lock("x")
            lost = await lock.acquire()
            assert lost is not None
            await client.evict("x", reason="a test")
            with pytest.raises(interlock.LeaseLost):
                await lost.renew()
            held = await asyncio.create_task(other(lock))
            with pytest.raises(interlock.LeaseLost):
                await asyncio.create_task(lock.release())
            assert held.state is interlock.State.HELD
            await held.release()

    async def other(lock: aio.Lock) -> aio.Lease:
        lease = await lock.acquire()
        assert lease is not None
        return lease

    asyncio.run(main())


def test_a_release_means_the_callers_lease_and_not_an_older_one_that_was_lost() -> None:
    with interlock.connect("memory://owners-older") as client:
        lock = client.lock("x")
        first, released = threading.Event(), threading.Event()
        raised: list[BaseException] = []

        def hold() -> None:
            lease = lock.acquire()
            assert lease
            assert client.evict("x", reason="a test")
            with pytest.raises(interlock.LeaseLost):
                lease.renew()
            first.set()
            assert released.wait(PATIENCE)
            try:
                lock.release()
            except interlock.LeaseLost as error:
                raised.append(error)

        thread = threading.Thread(target=hold)
        thread.start()
        assert first.wait(PATIENCE)
        mine = lock.acquire()
        assert mine
        lock.release()
        assert mine.state is interlock.State.RELEASED
        released.set()
        thread.join()
        assert raised


def test_a_lease_whose_thread_has_ended_says_so(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[events.Event] = []
    taken: list[interlock.Lease] = []
    ttl = stretched(TTL)
    with interlock.connect(fresh(), ttl=ttl, listener=seen.append) as client:
        lock = client.lock("x")

        def take() -> None:
            lease = lock.acquire()
            assert lease is not None
            taken.append(lease)

        with caplog.at_level(logging.WARNING, "interlock"):
            thread = threading.Thread(target=take, name="short-lived")
            thread.start()
            thread.join()
            (lease,) = taken
            assert lease.lost.wait(PATIENCE)
        with pytest.raises(interlock.LeaseLost) as told:
            lease.check()
        assert told.value.cause == "owner_ended"
        assert "short-lived" in told.value.reason
        for word in ("short-lived", "has ended", "adopt()"):
            assert word in str(told.value)
        (warning,) = [event for event in seen if isinstance(event, events.OwnerEnded)]
        assert (warning.resource, warning.token) == ("x", lease.token)
        assert 0 < warning.remaining < ttl
        assert "short-lived" in warning.owner
        assert any("adopt()" in record.getMessage() for record in caplog.records)
        with pytest.raises(interlock.LeaseLost) as told:  # also for whoever only has the lock
            lock.release()
        assert told.value.cause == "owner_ended"
        with pytest.raises(interlock.NotHeld, match="unlocked"):
            lock.release()


def test_a_lease_whose_task_has_ended_says_so() -> None:
    async def main() -> None:
        seen: list[events.Event] = []
        ttl = stretched(TTL)
        async with aio.connect(fresh(), ttl=ttl, listener=seen.append) as client:

            async def start() -> aio.Lease | None:
                return await client.lock("x").acquire()

            lease = await asyncio.create_task(start(), name="starter")
            assert lease is not None
            assert await lease.lost.wait(PATIENCE)
            loss = lease.loss()
            assert (loss.cause, loss.reason) == ("owner_ended", "task starter")
            assert [event.owner for event in seen if isinstance(event, events.OwnerEnded)] == ["task starter"]

    asyncio.run(main())


def test_a_lease_that_is_adopted_after_its_owner_ended_lives_on() -> None:
    seen: list[events.Event] = []
    taken: list[interlock.Lease] = []
    ttl = stretched(1.0)
    with interlock.connect(fresh(), ttl=ttl, listener=seen.append) as client:

        def take() -> None:
            lease = client.lock("x").acquire()
            assert lease is not None
            taken.append(lease)

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        eventually(lambda: any(isinstance(event, events.OwnerEnded) for event in seen), 30)
        taken[0].adopt()
        threading.Event().wait(1.5 * ttl)
        taken[0].check()
        assert len([event for event in seen if isinstance(event, events.OwnerEnded)]) == 1
        taken[0].release()


def test_a_lease_that_is_adopted_when_little_of_it_is_left_is_renewed_at_once() -> None:
    ttl = stretched(1.2)
    with interlock.connect(fresh(), ttl=ttl) as client:
        with ThreadPoolExecutor(1) as short_lived:
            lease = short_lived.submit(client.lock("x").acquire_or_raise).result()
        # By then its keeper has looked twice, and means to look again at its end.
        eventually(lambda: lease.remaining() < 0.25 * ttl)
        lease.adopt()
        eventually(lambda: lease.remaining() > 0.5 * ttl)
        lease.check()


def test_a_lease_that_was_evicted_cannot_be_adopted() -> None:
    with interlock.connect(fresh()) as client:
        lease = client.lock("x").acquire()
        assert lease is not None
        client.evict("x", reason="maintenance")
        with pytest.raises(interlock.LeaseLost):
            lease.renew()
        with pytest.raises(interlock.LeaseLost, match="maintenance"):
            lease.adopt()


def test_a_lease_that_was_released_cannot_be_adopted() -> None:
    with interlock.connect(fresh()) as client:
        lease = client.lock("x").acquire()
        assert lease is not None
        lease.release()
        with pytest.raises(interlock.NotHeld):
            lease.adopt()


def test_a_lease_that_nobody_was_to_renew_has_lapsed_whatever_became_of_its_owner() -> None:
    taken: list[interlock.Lease] = []
    with interlock.connect(fresh(), ttl=0.2) as client:

        def take() -> None:
            lease = client.lock("x", renew=False).acquire()
            assert lease is not None
            taken.append(lease)

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        assert taken[0].lost.wait(PATIENCE)
        assert taken[0].loss().cause == "lapsed"


# ---- adopted leases of locks that are entered again ------------------------------------------


def handed_over(work: Callable[[], object]) -> None:
    """Do the work on a thread of its own, and pass its failure on."""
    with ThreadPoolExecutor(1) as other:
        other.submit(work).result(PATIENCE)


@pytest.mark.parametrize("kind", ["rlock", "read", "write"])
def test_whoever_adopts_a_lock_that_is_entered_again_is_the_one_that_enters_it(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock, lease = made(client, kind), None
        lease = lock.acquire()

        def adopt() -> None:
            lease.adopt()
            assert lock.owned()
            assert lock.acquire(blocking=False) is lease
            lock.release()

        def release() -> None:
            lease.adopt()
            lock.release()

        handed_over(adopt)
        assert not lock.owned()
        if kind != "read":
            assert not lock.acquire(blocking=False)
        else:
            with lock as another:  # readers do not exclude each other, but this is no longer the same reader
                assert another is not lease
        with pytest.raises(interlock.NotHeld):
            lock.release()
        handed_over(release)
        assert not client.inspect("x").holders


def test_a_statement_whose_lease_was_adopted_goes_out_once_and_leaves_it_to_its_new_owner() -> None:
    with interlock.connect(fresh()) as client:
        lock = client.rlock("x")
        with ThreadPoolExecutor(1) as other:

            def adopt_and_enter(lease: interlock.Lease) -> None:
                lease.adopt()
                assert lock.acquire(blocking=False) is lease

            with lock as lease:
                other.submit(adopt_and_enter, lease).result(PATIENCE)
                assert not lock.acquire(blocking=False)
            lease.check()
            assert not lock.acquire(blocking=False)
            other.submit(lock.release).result(PATIENCE)
        assert lock.acquire(blocking=False)


def test_a_task_that_adopts_a_lock_that_is_entered_again_is_the_one_that_enters_it() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            lock = client.rlock("x")
            lease = await lock.acquire()
            assert lease

            async def adopt() -> None:
                lease.adopt()
                assert await lock.acquire(blocking=False) is lease
                await lock.release()
                assert lock.owned()
                await lock.release()

            task = asyncio.create_task(adopt())
            await task
            assert not lock.owned()
            assert not (await client.inspect("x")).holders

    asyncio.run(main())


def test_a_reader_that_reads_already_cannot_adopt_another_readers_lease() -> None:
    with interlock.connect(fresh()) as client:
        lock = client.rwlock("x").read()
        taken: list[interlock.Lease] = []
        handed_over(lambda: taken.append(lock.acquire()))  # type: ignore[arg-type]
        with lock:
            with pytest.raises(interlock.WouldDeadlock, match="x: "):
                taken[0].adopt()
        taken[0].adopt()
        lock.release()
        assert not client.inspect("x").holders


def test_two_tasks_of_one_thread_are_both_inside_a_lock_of_the_thread() -> None:
    async def main(client: interlock.Client) -> None:
        both = asyncio.Barrier(2)

        async def enter() -> None:
            with client.rlock("x", timeout=0):
                await asyncio.wait_for(both.wait(), PATIENCE)

        await asyncio.gather(enter(), enter())

    with interlock.connect(fresh()) as client:
        asyncio.run(main(client))


def test_who_enters_again_through_another_object_stays_in_the_lease_with_its_options() -> None:
    with interlock.connect(fresh()) as client:
        with client.rlock("x", note="first") as lease, client.rlock("x", note="second", ttl=60) as same:
            assert same is lease
            (holder,) = client.inspect("x").holders
            assert holder.note == "first"
            assert holder.lapses_in < 59
