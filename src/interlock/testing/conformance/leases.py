"""The life of a lease, as its holder sees it: held, doubtful, lost or released."""

from __future__ import annotations

from typing import Any

from interlock import events
from interlock._core.states import State
from interlock.errors import AcquireTimeout, LeaseLost, NotHeld
from interlock.testing.conformance.face import PATIENCE, forge_grants, got, refused, within
from interlock.testing.conformance.suite import Clocked, Suite
from interlock.testing.lag import at_most


class Leases(Suite):
    """Taken by a plain lock; the other synchronizers hold the same leases."""

    async def test_a_lease_knows_what_it_is(self) -> None:
        lock = self.client(ttl=7.0).lock(self.name)
        lease = await got(lock.acquire())
        assert (lease.resource, lease.permits, lease.ttl, lease.state) == (self.name, 1, 7.0, State.HELD)
        assert 0.0 < lease.remaining() < 7.0
        assert lease.token > 0
        assert lease
        lease.check()
        await got(lease.release())
        assert lease == True  # noqa: E712 - what code written for threading may say

    async def test_a_released_lease_is_not_held_and_not_lost(self) -> None:
        lock = self.client().lock(self.name)
        lease = await got(lock.acquire())
        await got(lease.release())
        assert lease.state is State.RELEASED
        assert lease.remaining() == 0.0
        error = await refused(NotHeld, lease.check)
        assert not isinstance(error, LeaseLost)
        await refused(NotHeld, lease.release)
        await refused(NotHeld, lock.release)

    async def test_a_body_runs_while_it_is_held_and_not_a_moment_longer(self) -> None:
        client = self.client()
        lock = client.lock(self.name)
        async with within(lock) as lease:
            lease.check()
            assert lock.owned()
            assert await got(client.lock(self.name).locked())
        assert lease.state is State.RELEASED
        assert not lock.owned()
        assert not await got(lock.locked())

    async def test_what_the_body_raises_leaves_and_the_lease_is_given_back(self) -> None:
        client = self.client()
        lock = client.lock(self.name)

        async def fail() -> None:
            async with within(lock):
                raise KeyError("mine")

        assert (await refused(KeyError, fail)).args == ("mine",)
        await self.standing(client, holders=0, waiters=0)

    async def test_a_body_may_release_by_itself(self) -> None:
        client = self.client()
        async with within(client.lock(self.name)) as lease:
            await got(lease.release())
            await self.standing(client, holders=0, waiters=0)

    async def test_a_lease_taken_by_hand_can_be_held_by_a_body(self) -> None:
        client = self.client()
        async with within(await got(client.lock(self.name).acquire())) as lease:
            lease.check()
        await self.standing(client, holders=0, waiters=0)

    async def test_a_holder_that_only_waits_loses_its_lease_and_its_place(self) -> None:
        """A waiter was told that it holds, by a stranger or by a server that has failed since: once the store
        has said that it only waits, its place must not keep others out for a whole ttl.
        """
        self.needs(fair=True)
        client, misled, next_one = self.client(), self.client(), self.client()
        held = await got(client.lock(self.name).acquire())
        forge_grants(misled._core.store)
        lease = await got(misled.lock(self.name, timeout=PATIENCE).acquire())
        await self.until(lambda: lease.state is State.LOST)
        assert lease.loss().cause == "refused"
        with at_most(2.0, "its place was left behind"):
            await self.standing(client, holders=1, waiters=0)
        held.check()
        await got(held.release())
        after = await got(next_one.lock(self.name, timeout=PATIENCE).acquire())
        await got(after.release())
        await refused(LeaseLost, lease.release)

    async def test_a_renewal_by_hand_gives_the_whole_ttl_again(self) -> None:
        lock = self.client(ttl=5.0).lock(self.name, renew=False)
        lease = await got(lock.acquire())
        await self.until(lambda: lease.remaining() < 4.7)
        deadline = lease.deadline
        await got(lease.renew())
        assert lease.deadline > deadline + 0.1
        await got(lease.release())

    async def test_without_renewal_it_is_lost_after_its_ttl_and_says_so_in_every_way(self) -> None:
        heard, called = list[events.Event](), list[Any]()
        client = self.client(listener=heard.append)
        lock = client.lock(self.name, ttl=self.short, renew=False, on_lost=called.append)
        lease = await got(lock.acquire())
        signal = lease.lost
        assert not signal.is_set()
        assert await got(signal.wait(PATIENCE))
        assert lease.state is State.LOST
        assert lease.remaining() == 0.0
        assert (await refused(LeaseLost, lease.check)).cause == "lapsed"
        await self.until(lambda: called == [lease])
        await self.until(lambda: any(isinstance(event, events.Lost) for event in heard))
        lost = [event for event in heard if isinstance(event, events.Lost)]
        assert [(event.resource, event.token, event.cause) for event in lost] == [
            (self.name, lease.token, "lapsed")
        ]
        await refused(LeaseLost, lock.release)
        await refused(NotHeld, lock.release)
        assert called == [lease]

    async def test_the_holder_knows_of_the_end_before_the_store_forgets(self) -> None:
        client = self.client()
        lease = await got(client.lock(self.name, ttl=max(1.0, self.short)).acquire())

        async def earlier() -> bool:
            asked, remaining = self.runtime.now(), lease.remaining()
            (standing,) = (await self.queue(client)).holders
            quick = self.runtime.now() - asked < 0.01  # otherwise the two are not of one instant
            assert not quick or remaining < standing.lapses_in
            return quick

        await self.until(earlier)
        await got(lease.release())

    async def test_a_body_whose_lease_was_lost_ends_with_that(self) -> None:
        lock = self.client().lock(self.name, ttl=self.short, renew=False)

        async def outlive() -> None:
            async with within(lock) as lease:
                await self.until(lambda: lease.state is State.LOST)

        await refused(LeaseLost, outlive)

    async def test_a_body_that_ends_before_it_could_hear_of_its_eviction_learns_the_reason(self) -> None:
        client, heard = self.client(), self.client()

        async def be_evicted() -> None:
            async with within(client.lock(self.name)):
                await got(heard.evict(self.name, reason="drill"))

        error = await refused(LeaseLost, be_evicted)
        assert (error.cause, error.reason) == ("evicted", "drill")

    async def test_the_bodys_own_error_is_not_masked_by_the_loss(self) -> None:
        lock = self.client().lock(self.name, ttl=self.short, renew=False)

        async def fail() -> None:
            async with within(lock) as lease:
                try:
                    await self.until(lambda: lease.state is State.LOST)
                finally:
                    raise KeyError("mine")

        error = await refused(KeyError, fail)
        assert "is lost" in " ".join(error.__notes__)

    async def test_max_hold_ends_it_however_alive_the_holder(self) -> None:
        client = self.client(ttl=self.short)
        lock = client.lock(self.name, max_hold=2 * self.short)
        with at_most(2 * self.short + 1.0):
            lease = await got(lock.acquire())
            await self.until(lambda: lease.state is State.LOST)
        assert (await refused(LeaseLost, lease.check)).cause == "max_hold"
        async with within(client.lock(self.name, timeout=PATIENCE)):
            pass

    async def test_min_hold_keeps_others_out_after_the_release(self) -> None:
        client, other = self.client(), self.client().lock(self.name)
        lock = client.lock(self.name, min_hold=2 * self.short)
        began = self.runtime.now()
        await got(lock.acquire())
        await got(lock.release())
        await refused(NotHeld, lock.release)
        assert not await got(other.acquire(blocking=False))
        assert await got(other.acquire(timeout=PATIENCE))
        assert self.runtime.now() - began >= 2 * self.short * 0.9
        await got(other.release())

    async def test_min_hold_and_max_hold_count_from_the_grant_though_the_client_is_older(self) -> None:
        """Where claims live with a session, the time of a lease may count from a keep-alive long before
        its grant.
        """
        self.needs(lapses="session")
        ttl = 10.0  # seconds: a session of exactly this length
        client, other = self.client(ttl=ttl), self.client(ttl=ttl).lock(self.name)
        async with within(client.lock(self.name)):
            pass
        await self.runtime.sleep(
            0.2 * ttl
        )  # the session grows old, but not so old that a claim keeps it first
        lock = client.lock(self.name, min_hold=0.15 * ttl)
        await got(lock.acquire())
        began = self.runtime.now()
        await got(lock.release())
        assert await got(other.acquire(timeout=PATIENCE))
        assert self.runtime.now() - began >= 0.15 * ttl
        await got(other.release())
        # It ends a moment before `max_hold`, and is renewed to its end though that is the end of its ttl,
        # too.
        began = self.runtime.now()
        lease = await got(client.lock(self.name, max_hold=ttl).acquire())
        await self.until(lambda: lease.state is State.LOST)
        assert self.runtime.now() - began >= 0.95 * ttl
        assert (await refused(LeaseLost, lease.check)).cause == "max_hold"

    async def test_min_hold_keeps_those_out_who_wait_already(self) -> None:
        await self.keeps_min_hold(
            lambda client, min_hold: client.lock(self.name, min_hold=min_hold), capacity=1
        )

    async def test_a_lease_is_not_renewed_for_an_owner_that_has_ended(self) -> None:
        client, kept = self.client(ttl=self.short), list[Any]()
        lock = client.lock(self.name)

        async def take() -> None:
            kept.append(await got(lock.acquire()))

        await self.spawn(take).result()
        await self.until(lambda: kept[0].state is State.LOST)
        other = self.client().lock(self.name)
        assert await got(other.acquire(timeout=PATIENCE))
        await got(other.release())

    async def test_a_lease_is_renewed_for_who_adopts_it(self) -> None:
        await self.with_a_ttl_that_the_machine_can_keep(self._outlives_its_owner)

    async def _outlives_its_owner(self, ttl: float, clocked: Clocked) -> bool:
        """Whether a lease that was adopted is held two ttls later."""
        client, kept = self.client(ttl=ttl), list[Any]()
        lock = client.lock(self.name)

        async def take() -> None:
            kept.append(await got(lock.acquire(timeout=PATIENCE)))

        await self.spawn(take).result()
        kept[0].adopt()
        end, other = self.runtime.now() + 2 * ttl, self.client()
        while self.runtime.now() < end:
            await clocked(lambda: self.queue(other))
            await self.runtime.sleep(ttl / 10)
        if kept[0].state is not State.HELD:
            return False
        await got(kept[0].release())
        return True

    async def test_release_means_the_callers_own_lease_first(self) -> None:
        self.needs(shares="any")
        client = self.client()
        semaphore, theirs = client.semaphore(self.name, 2), list[Any]()

        async def take() -> None:
            theirs.append(await got(semaphore.acquire()))
            await self.until(lambda: len(theirs) == 2)

        actor = self.spawn(take)
        await self.until(lambda: theirs)
        ours = await got(semaphore.acquire())
        await got(semaphore.release())
        assert (ours.state, theirs[0].state) == (State.RELEASED, State.HELD)
        await got(semaphore.release())  # the caller has none any more: the one this object holds
        assert theirs[0].state is State.RELEASED
        theirs.append(None)
        await actor.result()

    async def test_a_callback_that_fails_harms_nobody(self) -> None:
        heard = list[events.Event]()

        def fail(lease: Any) -> None:
            raise ValueError("a bug in a callback")

        client = self.client(listener=heard.append)
        await got(client.lock(self.name, ttl=self.short, renew=False, on_lost=fail).acquire())
        await self.until(lambda: [event for event in heard if isinstance(event, events.CallbackFailed)])
        async with within(client.lock(self.name, timeout=PATIENCE)):
            pass

    async def test_a_listener_hears_what_happens(self) -> None:
        heard = list[events.Event]()
        client = self.client(listener=heard.append)
        lock = client.lock(self.name)
        lease = await got(lock.acquire())
        assert not await got(client.lock(self.name).acquire(timeout=0.01))
        await got(lock.release())
        acquired, queued, timed_out, released = heard
        assert isinstance(queued, events.Queued)
        assert isinstance(acquired, events.Acquired)
        assert isinstance(timed_out, events.TimedOut)
        assert isinstance(released, events.Released)
        assert acquired.token == released.token == lease.token
        assert timed_out.waited >= 0.009

    async def test_events_tell_how_long_a_lease_was_waited_for_and_how_long_it_was_held(self) -> None:
        heard = list[events.Event]()
        holder, waiting = self.client(), self.client(listener=heard.append)
        lease = await got(holder.lock(self.name).acquire())
        waiter = self.spawn(lambda: self._enter(waiting.lock(self.name)))
        pause = 2 * self.short
        await self.runtime.sleep(pause)
        await got(lease.release())
        released_at = self.runtime.now()
        await waiter.result()
        acquired = next(event for event in heard if isinstance(event, events.Acquired))
        released = next(event for event in heard if isinstance(event, events.Released))
        # A thread or task may begin late, but what was released late was waited for so long.
        assert acquired.waited >= pause / 2
        assert released.held <= self.runtime.now() - released_at + 0.1

    async def test_a_timeout_names_the_holder_and_counts_who_is_ahead(self) -> None:
        self.needs(fair=True)
        client = self.client()
        lease = await got(client.lock(self.name).acquire())
        waiter = self.spawn(lambda: self._enter(client.lock(self.name)))
        await self.standing(client, holders=1, waiters=1)
        error = await refused(AcquireTimeout, lambda: self._enter(client.lock(self.name, timeout=0.05)))
        assert isinstance(error, TimeoutError)
        assert (error.resource, error.ahead) == (self.name, 2)
        assert error.waited >= 0.05
        assert [holder.token for holder in error.holders] == [lease.token]
        for word in (self.name, "2 claims ahead", "pid", f"token {lease.token}"):
            assert word in str(error)
        await got(lease.release())
        await waiter.result()

    async def test_who_does_not_wait_is_told_as_much(self) -> None:
        heard, told_of = list[events.Event](), list[int | None]()
        async with within(self.client().lock(self.name)) as lease:
            lock = self.client(listener=heard.append).lock(self.name, timeout=0)

            async def told() -> AcquireTimeout | None:
                error = await refused(AcquireTimeout, lambda: self._enter(lock))
                told_of.append(error.ahead)
                return error if error.holders else None

            error = await self.until(told)  # a busy server may not name the holders in time
        assert told_of == [1] * len(told_of)
        assert [holder.token for holder in error.holders] == [lease.token]
        assert [event.ahead for event in heard if isinstance(event, events.TimedOut)] == told_of

    async def _enter(self, lock: Any) -> None:
        async with within(lock):
            pass
