"""Attacks on those who pass a lock on among themselves: no token twice, no claim lost on the way, nobody forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

from interlock import aio, events
from interlock._core.cohort import TOKENS_PER_GRANT
from interlock._core.drive import drive
from interlock._runtime import lifetimes
from interlock._support.record import replaced
from interlock.blocking import Lease
from interlock.errors import AcquireTimeout, ClientClosed, Evicted, LeaseLost, StoreUnavailable
from interlock.model import Busy, Gone, Granted
from interlock.testing.lag import at_most, stretched
from interlock.who import Who
from tests.attacks.stage import AsyncStage, Stage, eventually, space
from tests.patience import PATIENCE

TURN = 2.0


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn lasts 0.1 s, in which a busy machine does not get through a test: here it lasts longer."""
    monkeypatch.setattr("interlock._core.cohort.TURN_S", TURN)
    monkeypatch.setattr("interlock._core.attempt.TURN_S", TURN)


def waiting(stage: Stage | AsyncStage, resource: str = "x") -> int:
    """How many stand behind the head."""
    return len(stage.core.cohorts._lines.get(resource, ()))


def stands(stage: Stage | AsyncStage, count: int) -> bool:
    return waiting(stage) == count


class Turn:
    """A lease whose heirs wait for it, in threads.

    Another client holds, one asks the store, and the others stand behind that one; when it is evicted, the next of them asks
    for those behind it. That next one's lease is `first`.
    """

    def __init__(self, stage: Stage, heirs: int, ttl: float = 30.0) -> None:
        self.leases: list[Lease] = []  # that the heirs had, in order
        self.errors: list[BaseException] = []
        self.go = threading.Event()  # an heir that holds waits for it
        self.go.set()
        self._stage, self._ttl = stage, ttl
        other = Stage(shared=stage.store.inner._space)
        holder = other.client.lock("x", ttl=ttl).acquire()
        assert holder
        asks = threading.Thread(target=self._be_evicted, daemon=True)
        asks.start()
        eventually(lambda: "wait" in stage.store.asked)
        (asking,) = other.client.inspect("x").waiters
        firsts: list[Any] = []
        first = threading.Thread(target=self._attempt, args=(firsts,), daemon=True)
        first.start()
        eventually(partial(stands, stage, 1))
        self.threads = [
            threading.Thread(target=self._take, args=(self.leases,), daemon=True) for _ in range(heirs)
        ]
        for number, thread in enumerate(self.threads, 2):
            thread.start()
            eventually(partial(stands, stage, number))
        other.client.evict("x", id=asking.id, reason="so that the next one asks")
        joined([asks])
        eventually(lambda: len(other.client.inspect("x").waiters) == 1)
        holder.release()
        other.client.close()
        eventually(lambda: firsts)
        self.attempt, self.first = firsts
        joined([first])

    def _be_evicted(self) -> None:
        with pytest.raises(Evicted):
            self._stage.client.lock("x", ttl=self._ttl).acquire()

    def _attempt(self, firsts: list[Any]) -> None:
        attempt = self._stage.client.lock("x", ttl=self._ttl)._core.attempt()
        lease = drive(attempt.run())
        assert lease
        lease._set_owner(_Stays())
        firsts.extend((attempt, lease))

    def _take(self, leases: list[Lease]) -> None:
        try:
            with self._stage.client.lock("x", ttl=self._ttl) as lease:
                leases.append(lease)
                assert self.go.wait(PATIENCE)
        except BaseException as error:
            self.errors.append(error)


class _Stays:
    """An owner that lives on: the thread that took the first lease is over."""

    name = "stays"

    def alive(self) -> bool:
        return True


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_those_who_wait_in_one_client_pass_the_claim_on_with_rising_tokens() -> None:
    stage = Stage()
    turn = Turn(stage, 5)
    before = len(stage.store.asked)
    with at_most(TURN / 2, "an heir was not woken"):
        turn.first.release()
        joined(turn.threads)
    tokens = [turn.first.token, *(lease.token for lease in turn.leases)]
    assert tokens == list(range(turn.first.token, turn.first.token + 6))
    assert len({lease._claim.id for lease in turn.leases} | {turn.first._claim.id}) == 1
    assert stage.store.asked[before:] == ["release"]
    stage.client.close()


def test_a_turn_is_over_after_so_many_tokens_and_the_next_are_above_them() -> None:
    stage = Stage()
    turn = Turn(stage, TOKENS_PER_GRANT + 3)
    turn.first.release()
    joined(turn.threads)
    tokens = [turn.first.token, *(lease.token for lease in turn.leases)]
    assert sorted(set(tokens)) == tokens
    assert tokens[TOKENS_PER_GRANT] >= tokens[0] + TOKENS_PER_GRANT, "the block was the first claim's alone"
    assert len({lease._claim.id for lease in turn.leases}) == 2
    stage.client.close()


def test_an_heir_inherits_what_is_left_not_a_whole_ttl() -> None:
    stage = Stage()
    turn = Turn(stage, 1, ttl=20.0)
    deadline = turn.first.deadline
    turn.first.release()
    joined(turn.threads)
    assert turn.leases[0].deadline == deadline
    stage.client.close()


def test_what_is_held_for_long_is_queued_for_in_the_store() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    before = stage.store.asked.count("claim")
    eventually(lambda: stage.store.asked.count("claim") == before + 1)
    turn.first.release()
    joined(turn.threads)
    assert turn.leases
    stage.client.close()


def test_who_wants_another_ttl_asks_the_store_for_itself() -> None:
    stage = Stage()
    with stage.client.lock("x", ttl=20.0) as lease:
        assert stage.client.lock("x", ttl=10.0).acquire(timeout=0.01) is None
        lease.check()
    assert stage.store.asked[:2] == ["claim", "claim"]
    stage.client.close()


def test_a_lease_that_was_lost_is_not_passed_on() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    asyncio.run(stage.store.inner.evict("x", None, "maintenance"))
    with pytest.raises(LeaseLost):
        turn.first.renew()
    assert turn.first._turn
    assert not turn.first._turn.heirs, "they must ask the store, and not sleep out their turn"
    joined(turn.threads)
    assert turn.leases[0]._claim.id != turn.first._claim.id
    with pytest.raises(LeaseLost):
        turn.first.release()
    stage.client.close()


def test_a_release_after_it_was_passed_on_does_not_touch_the_heir() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    turn.go.clear()
    turn.first.release()
    eventually(lambda: turn.leases)
    with pytest.raises(RuntimeError, match="released before"):
        turn.first.release()
    assert asyncio.run(stage.store.inner.inspect("x")).holders
    turn.go.set()
    joined(turn.threads)
    assert not turn.errors
    stage.client.close()


def test_closing_wakes_those_who_stand_behind_others() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    with at_most(2.0):
        stage.client.close()
        joined(turn.threads)
    assert isinstance(turn.errors[0], ClientClosed)


async def held(stage: AsyncStage, ttl: float = 30.0) -> aio.Lease:
    lease = await stage.client.lock("x", ttl=ttl).acquire()
    assert lease
    return lease


async def behind(stage: AsyncStage, count: int, *, ttl: float = 30.0) -> asyncio.Task[aio.Lease | None]:
    """One more who stands behind the head, as the last of `count`."""
    task = asyncio.create_task(stage.client.lock("x", ttl=ttl).acquire())
    while waiting(stage) != count:
        await asyncio.sleep(0)
    return task


Prepared = tuple[AsyncStage, aio.Lease, "asyncio.Task[aio.Lease | None]", "asyncio.Task[aio.Lease | None]"]


async def prepared(stage: AsyncStage, ttl: float = 30.0) -> Prepared:
    """Another client that holds, one who asks the store, and one behind that one: see `Turn`."""
    other = AsyncStage(shared=stage.store.inner._space)
    holder = await held(other, ttl)
    asks = asyncio.create_task(stage.client.lock("x", ttl=ttl).acquire())
    while "wait" not in stage.store.asked:
        await asyncio.sleep(0)
    return other, holder, asks, await behind(stage, 1, ttl=ttl)


async def begun(prepared: Prepared) -> aio.Lease:
    """The lease of the last of them: those behind it are its heirs."""
    other, holder, asks, last = prepared
    asks.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asks
    while len((await other.client.inspect("x")).waiters) != 1:
        await asyncio.sleep(0)
    await holder.release()
    lease = await asyncio.wait_for(last, PATIENCE)
    assert lease
    await other.client.close()
    return lease


def age(lease: aio.Lease) -> None:
    """Let so much time pass that the lease's turn is over."""
    assert lease._turn
    lease._turn.began -= TURN


Heirs = list["asyncio.Task[aio.Lease | None]"]


async def turn(stage: AsyncStage, count: int, ttl: float = 30.0) -> tuple[aio.Lease, Heirs]:
    before = await prepared(stage, ttl)
    heirs = [await behind(stage, number + 2, ttl=ttl) for number in range(count)]
    lease = await begun(before)
    assert len(lease._turn.heirs if lease._turn else ()) == count
    return lease, heirs


def test_an_heir_that_is_cancelled_when_its_turn_comes_gives_the_claim_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, (heir,) = await turn(stage, 1)
        await lease.release()  # the heir has it now, and does not know yet
        heir.cancel()
        with pytest.raises(asyncio.CancelledError):
            await heir
        assert not (await stage.store.inner.inspect("x")).standings
        assert await stage.client.lock("x").acquire(blocking=False)
        await stage.client.close()

    asyncio.run(main())


def test_one_of_the_cohort_that_gives_up_is_passed_over() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, heirs = await turn(stage, 3)
        heirs[0].cancel()
        await asyncio.sleep(0)
        await lease.release()
        second = await asyncio.wait_for(heirs[1], PATIENCE)
        assert second
        assert second.token == lease.token + 1
        await second.release()
        third = await asyncio.wait_for(heirs[2], PATIENCE)
        assert third
        assert third.token == lease.token + 2
        await third.release()
        await stage.client.close()

    asyncio.run(main())


# ---- what once broke it ------------------------------------------------------------


def test_an_heir_that_is_cancelled_twice_is_no_head_any_more() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, (heir,) = await turn(stage, 1)
        reached, go = asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any, **options: Any) -> bool:
            reached.set()
            await go.wait()
            return await stage.store.inner.release(*args, **options)

        await lease.release()  # passed on
        stage.store.instead["release"] = slowly
        heir.cancel()
        await asyncio.wait_for(reached.wait(), PATIENCE)
        heir.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await heir
        assert not stage.core.cohorts._heads, "all who come later would stand behind it for nothing"
        await stage.client.close()

    asyncio.run(main())


def test_nobody_inherits_a_lease_of_another_ttl_from_one_who_came_between() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first, (patient,) = await turn(stage, 1, ttl=20.0)
        age(first)  # the turn is over
        hasty = asyncio.create_task(stage.client.lock("x", ttl=10.0).acquire())
        await asyncio.sleep(0)
        await first.release()

        async def ttl_of(task: asyncio.Task[aio.Lease | None]) -> float:
            lease = await task
            assert lease
            await lease.release()
            return lease.ttl

        ttls = await asyncio.wait_for(asyncio.gather(ttl_of(patient), ttl_of(hasty)), PATIENCE)
        assert [*ttls] == [20.0, 10.0]
        await stage.client.close()

    asyncio.run(main())


def test_heirs_that_are_left_when_the_turn_is_over_are_not_forgotten() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first, heirs = await turn(stage, 3)
        late = asyncio.create_task(stage.client.lock("x").acquire())
        for _ in range(5):
            await asyncio.sleep(0)
        age(first)
        await first.release()

        async def once(task: asyncio.Task[aio.Lease | None]) -> None:
            lease = await task
            assert lease
            await lease.release()

        with at_most(TURN / 2, "somebody slept it out"):
            await asyncio.wait_for(asyncio.gather(*map(once, [late, *heirs])), PATIENCE)
        await stage.client.close()

    asyncio.run(main())


def test_what_is_on_its_way_to_an_heir_when_the_client_closes_is_given_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, (heir,) = await turn(stage, 1)

        async def over_the_wire(*args: Any, **options: Any) -> bool:
            await asyncio.sleep(0.01)
            if "close" in stage.store.asked:
                raise StoreUnavailable("the connection was closed")
            return await stage.store.inner.release(*args, **options)

        stage.store.instead["release"] = over_the_wire
        await lease.release()
        await stage.client.close()
        with pytest.raises(ClientClosed):
            await heir
        assert not (await stage.store.inner.inspect("x")).standings

    asyncio.run(main())


def test_what_is_on_its_way_to_an_heir_when_the_process_ends_is_given_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, (heir,) = await turn(stage, 1)
        await lease.release()
        lifetimes._give_back(stage.core, stage.core.runtime.now() + 1.0)
        assert not (await stage.store.inner.inspect("x")).standings
        heir.cancel()
        await stage.client.close()

    asyncio.run(main())


def test_one_whose_event_loop_is_gone_inherits_nothing() -> None:
    stage = AsyncStage()
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    before = here.run_until_complete(prepared(stage))
    left_behind = there.run_until_complete(behind(stage, 2))
    lease = here.run_until_complete(begun(before))
    assert lease._turn
    assert lease._turn.heirs
    there.close()
    here.run_until_complete(lease.release())
    assert not here.run_until_complete(stage.store.inner.inspect("x")).standings
    here.run_until_complete(stage.client.close())
    here.close()
    assert not left_behind.done()


def test_nobody_stands_behind_a_head_whose_event_loop_is_gone() -> None:
    shared = space()
    stage, other = AsyncStage(ttl=0.3, shared=shared), Stage(shared=shared)
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    lease = other.client.lock("x").acquire()
    assert lease
    head = there.create_task(stage.client.lock("x").acquire())

    async def it_waits() -> None:
        while "wait" not in stage.store.asked:
            await asyncio.sleep(0)

    there.run_until_complete(it_waits())
    there.close()
    lease.release()
    eventually(lambda: not asyncio.run(other.store.inner.inspect("x")).standings)
    with at_most(TURN / 2, "it stood behind somebody who was gone"):
        assert here.run_until_complete(stage.client.lock("x").acquire(timeout=PATIENCE))
    here.run_until_complete(stage.client.close())
    here.close()
    other.client.close()
    assert not head.done()


def test_an_heir_that_wakes_too_late_does_not_get_what_has_lapsed() -> None:
    async def main() -> None:
        ttl = stretched(0.2)
        stage = AsyncStage(ttl=ttl)
        lease, (heir,) = await turn(stage, 1, ttl=ttl)
        await lease.release()
        time.sleep(1.5 * ttl)  # the event loop is stuck, and nobody renews what is on its way
        got = await asyncio.wait_for(heir, PATIENCE)
        assert got
        got.check()
        assert got.token >= lease.token + TOKENS_PER_GRANT
        await stage.client.close()

    asyncio.run(main())


def test_a_lease_is_not_passed_on_while_the_store_is_asked_about_it() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    first = turn.first
    asked, go = threading.Event(), threading.Event()

    async def gone(*args: Any, **options: Any) -> list[Gone]:
        asked.set()
        assert go.wait(PATIENCE)
        return [Gone()]

    stage.store.instead["renew"] = gone
    failures: list[BaseException] = []

    def renew() -> None:
        try:
            first.renew()
        except BaseException as error:
            failures.append(error)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    assert asked.wait(PATIENCE)
    first.release()
    go.set()
    joined([renewing, *turn.threads])
    assert turn.leases[0]._claim.id != first._claim.id, "nobody would have told the heir of the answer"
    stage.client.close()


def test_a_doubt_while_a_lease_is_on_its_way_is_the_heirs() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease, (heir,) = await turn(stage, 1)
        await lease.release()
        stage.core.keeper.doubt()  # another server took over
        eventually(lambda: stage.core.keeper._verified >= stage.core.keeper.doubted)
        assert "renew" not in stage.plain.asked, "nobody had it"
        assert await asyncio.wait_for(heir, PATIENCE)
        eventually(lambda: "renew" in stage.plain.asked)
        await stage.client.close()

    asyncio.run(main())


def test_one_interrupted_before_it_had_its_lease_does_not_take_it_from_the_heir() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    turn.go.clear()
    turn.first.release()  # by another thread, as threading: any may
    eventually(lambda: turn.leases)
    drive(turn.attempt.undo())  # Ctrl-C, before `acquire` has returned
    assert asyncio.run(stage.store.inner.inspect("x")).holders
    turn.go.set()
    joined(turn.threads)
    assert not turn.errors
    stage.client.close()


def test_how_long_an_heir_waited_is_reported() -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    time.sleep(0.05)
    turn.first.release()
    joined(turn.threads)
    waits = [event.waited for event in stage.events if isinstance(event, events.Acquired)]
    assert waits[-1] >= 0.05
    stage.client.close()


def test_an_heir_that_holds_for_longer_than_a_moment_is_shown_as_the_holder() -> None:
    stage = Stage()
    turn = Turn(stage, heirs=1)
    turn.go.clear()
    turn.first.release()
    eventually(lambda: turn.leases)
    heir = turn.leases[0]
    assert heir.token == turn.first.token + 1

    def shown() -> tuple[int, str]:
        (holder,) = stage.client.inspect("x").holders
        return holder.token, Who.parse(holder.who).thread

    eventually(lambda: shown() == (heir.token, turn.threads[0].name))
    assert not stage.client.inspect("x").holders[0].note
    with pytest.raises(AcquireTimeout, match=str(heir.token)), stage.client.lock("x", timeout=0):
        pass
    heir.check()
    turn.go.set()
    joined(turn.threads)
    stage.client.close()


def test_an_heir_whose_wait_ends_before_its_turn_comes_asks_the_store() -> None:
    async def main() -> None:
        stage = AsyncStage()
        before = await prepared(stage)
        hasty = asyncio.create_task(stage.client.lock("x").acquire(timeout=0.2))
        while not stands(stage, 2):
            await asyncio.sleep(0)
        first = await begun(before)
        assert await hasty is None, "two would hold"
        first.check()
        await first.release()
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())


@pytest.mark.parametrize("heirs", [0, 1])
def test_a_release_from_inside_the_store_is_passed_on_or_done_by_the_keeper(
    heirs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    turn = Turn(stage, 1)
    if not heirs:
        assert turn.first._turn
        turn.first._turn.passes = 0
    releases = threading.get_ident()

    def told(*args: Any, **options: Any) -> None:
        assert threading.get_ident() != releases, "it would wait for itself"

    monkeypatch.setattr(stage.store.inner, "inside", lambda: threading.get_ident() == releases)
    stage.store.before["release"] = told
    turn.first.release()
    joined(turn.threads)
    assert not turn.errors
    assert (turn.leases[0].token == turn.first.token + 1) == bool(heirs)
    monkeypatch.undo()
    eventually(lambda: not stage.client.inspect("x").standings)
    stage.client.close()


# ---- those who came after the grant ---------------------------------------------------


async def waiter(stage: AsyncStage) -> asyncio.Task[aio.Lease | None]:
    """One more that wants the lock, and has had an answer of the store."""
    before = stage.store.asked.count("claim")
    task = asyncio.create_task(stage.client.lock("x").acquire())
    while stage.store.asked.count("claim") == before:
        await asyncio.sleep(0)
    for _ in range(5):  # the answer has arrived
        await asyncio.sleep(0)
    return task


async def got(task: asyncio.Task[aio.Lease | None]) -> aio.Lease:
    lease = await asyncio.wait_for(task, PATIENCE)
    assert lease
    return lease


async def nothing_stands(stage: AsyncStage) -> bool:
    return not (await stage.store.inner.inspect("x")).standings


async def stands_no_more(stage: AsyncStage) -> None:
    end = time.monotonic() + PATIENCE
    while not await nothing_stands(stage):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_one_that_came_after_the_store_was_asked_is_no_heir_before_the_store_has_answered_again() -> None:
    async def main() -> None:
        stage = AsyncStage()
        reached, go = asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any, **options: Any) -> Any:
            reached.set()
            await go.wait()
            return await stage.store.inner.claim(*args, **options)

        stage.store.instead["claim"] = slowly
        head = asyncio.create_task(stage.client.lock("x").acquire())
        await asyncio.wait_for(reached.wait(), PATIENCE)
        late = await behind(stage, 1)
        go.set()
        go.clear()  # for the late one
        first = await got(head)
        assert first._turn is None
        go.set()
        await first.release()
        assert (await got(late)).token > first.token
        await stage.client.close()

    asyncio.run(main())


def test_a_waiter_that_came_after_the_grant_inherits_and_leaves_no_place_behind() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        before = len(stage.store.asked)
        await first.release()
        second = await got(late)
        assert (second.token, second._claim.id) == (first.token + 1, first._claim.id)
        assert stage.store.asked[before:] == [], "the store was not asked"
        await second.release()
        assert stage.store.asked[before:] == ["release", "release"], "its place, and the claim"
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())


def test_the_next_waiter_stands_in_the_place_that_an_heir_has_left() -> None:
    async def main() -> None:
        stage = AsyncStage()
        tokens = []
        lease = await held(stage)
        for _ in range(TOKENS_PER_GRANT - 1):
            late = await waiter(stage)
            assert len((await stage.store.inner.inspect("x")).waiters) == 1
            tokens.append(lease.token)
            await lease.release()
            lease = await got(late)
        assert tokens == list(range(tokens[0], tokens[0] + TOKENS_PER_GRANT - 1))
        late = await waiter(stage)
        await lease.release()  # no token is left: it goes back to the store
        last = await got(late)
        assert last.token > tokens[0] + TOKENS_PER_GRANT - 1
        assert last._claim.id != lease._claim.id
        await last.release()
        assert stage.store.asked.count("release") == 2
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())


def test_a_waiter_inherits_only_if_the_store_names_the_holder_of_its_own_client() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)

        async def unnamed(*args: Any, **options: Any) -> Any:
            answer = await stage.store.inner.claim(*args, **options)
            return replaced(answer, holder=None) if isinstance(answer, Busy) else answer

        stage.store.instead["claim"] = unnamed
        late = await waiter(stage)
        await first.release()
        second = await got(late)
        assert second._claim.id != first._claim.id
        assert second.token >= first.token + TOKENS_PER_GRANT
        await stage.client.close()

    asyncio.run(main())


def test_one_that_began_after_another_client_was_let_in_does_not_inherit_what_is_lost() -> None:
    async def main() -> None:
        shared = space()
        stage, other = AsyncStage(shared=shared), AsyncStage(shared=shared)
        first = await held(stage)
        await stage.store.inner.evict("x", None, "maintenance")  # of which nobody has told it yet
        between = await held(other)
        late = await waiter(stage)
        with pytest.raises(LeaseLost):
            await first.release()
        assert not late.done(), "two would hold"
        await between.release()
        assert (await got(late)).token > between.token > first.token
        await stage.client.close()
        await other.client.close()

    asyncio.run(main())


def test_waiters_of_other_clients_are_not_overtaken_by_one_that_came_later() -> None:
    async def main() -> None:
        shared = space()
        stage, other = AsyncStage(shared=shared), AsyncStage(shared=shared)
        first = await held(stage)
        stranger = await waiter(other)
        late = await waiter(stage)
        await first.release()
        between = await got(stranger)
        assert not late.done()
        await between.release()
        assert (await got(late)).token > between.token
        await stage.client.close()
        await other.client.close()

    asyncio.run(main())


def test_those_who_lined_up_after_the_head_had_asked_do_not_inherit_with_it() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        reached, go = asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any, **options: Any) -> Any:
            answer = await stage.store.inner.claim(*args, **options)
            reached.set()
            await go.wait()
            return answer

        stage.store.instead["claim"] = slowly
        head = asyncio.create_task(stage.client.lock("x").acquire())
        await asyncio.wait_for(reached.wait(), PATIENCE)
        later = await behind(stage, 1)  # the store may have answered before it began
        stage.store.instead.clear()
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        asked = stage.store.asked.count("claim")
        await first.release()
        second = await got(head)
        assert second.token == first.token + 1
        await second.release()
        await got(later)
        assert stage.store.asked.count("claim") > asked, "it had to ask the store itself"
        await stage.client.close()

    asyncio.run(main())


@pytest.mark.parametrize("answer", ["stood", "gone", "lost"])
def test_those_who_came_while_our_own_claim_stood_inherit_from_the_next(answer: str) -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        head = await waiter(stage)
        later = await behind(stage, 1)  # after the head has asked
        assert first._turn
        first._turn.passes = 0  # the turn is over: the claim goes back to the store

        async def unheard(resource: str, id: str, *args: Any, **options: Any) -> bool:
            stood = await stage.store.inner.release(resource, id, *args, **options)
            if id != first._claim.id or answer == "stood":
                return stood
            if answer == "lost" and stood:  # the second answer is that it is gone: nobody knows since when
                raise StoreUnavailable("no answer")
            return False

        async def told(claim: Any, busy: Any, timeout: float) -> Granted | None:
            """The grant comes with the wake-up: the store is not asked again."""
            await stage.store.inner.wait(claim, busy, timeout)
            granted = await stage.store.inner.claim(claim)
            return granted if isinstance(granted, Granted) else None

        stage.store.instead |= {"release": unheard, "wait": told}
        claims = stage.store.asked.count("claim")
        if answer == "gone":
            with pytest.raises(LeaseLost):
                await first.release()
        else:
            await first.release()
        second = await got(head)
        await second.release()
        third = await got(later)
        assert third.token > second.token
        assert (stage.store.asked.count("claim") == claims) == (answer == "stood")
        await third.release()
        await stage.client.close()

    asyncio.run(main())


@pytest.mark.parametrize("passed", [False, True])
def test_a_late_waiter_that_is_cancelled_leaves_nothing(passed: bool) -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        if passed:
            await first.release()  # the claim is its own by now
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        if not passed:
            assert len((await stage.store.inner.inspect("x")).standings) == 1
            await first.release()
        await stands_no_more(stage)
        assert await stage.client.lock("x").acquire(blocking=False)
        await stage.client.close()

    asyncio.run(main())


def test_an_operator_who_evicts_the_place_that_was_left_does_not_meet_who_stands_there_now() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        await first.release()
        second = await got(late)
        (place,) = (await stage.store.inner.inspect("x")).waiters
        await stage.store.inner.evict("x", place.id, "stuck")
        innocent = await waiter(stage)
        await second.release()
        assert await got(innocent)
        await stage.client.close()

    asyncio.run(main())


def test_the_place_of_a_waiter_that_entered_anew_after_an_eviction_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place that was evicted was another attempt's: the keeper must not go on renewing that one instead."""
    monkeypatch.setattr("interlock._core.attempt.TURN_S", 0.05)

    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        await first.release()
        second = await got(late)
        (left,) = (await stage.store.inner.inspect("x")).waiters
        innocent = await waiter(stage)
        await eventually_kept(stage, left.id)
        await stage.store.inner.evict("x", left.id, "stuck")
        while [each.id for each in (await stage.store.inner.inspect("x")).waiters] in ([], [left.id]):
            await asyncio.sleep(0.01)
        (own,) = (await stage.store.inner.inspect("x")).waiters
        await eventually_kept(stage, own.id)
        assert left.id not in kept(stage)
        await second.release()
        assert await got(innocent)
        await stage.client.close()

    asyncio.run(main())


def kept(stage: AsyncStage) -> list[str]:
    """The ids of the claims and places that the keeper renews."""
    return [each.id for each in stage.core.keeper.kept() if not each._ended]


async def eventually_kept(stage: AsyncStage, id: str) -> None:
    end = time.monotonic() + PATIENCE
    while id not in kept(stage):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_place_behind_a_lease_that_is_lost_is_removed() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        await first.release()
        second = await got(late)
        await stage.store.inner.evict("x", None, "maintenance")
        with pytest.raises(LeaseLost):
            await second.renew()
        await stands_no_more(stage)
        assert "release" in stage.plain.asked, "others would have had to wait until it lapsed"
        await stage.client.close()

    asyncio.run(main())


@pytest.mark.parametrize("ends", ["close", "process"])
@pytest.mark.parametrize("left", [True, False])
def test_a_place_behind_our_own_claim_is_removed_at_the_end(ends: str, left: bool) -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        if left:
            await first.release()
            assert await got(late)
        assert len((await stage.store.inner.inspect("x")).waiters) == 1
        with at_most(TURN / 2, "it slept out its turn"):
            if ends == "close":
                await stage.client.close()
            else:
                lifetimes._give_back(stage.core, stage.core.runtime.now() + 1.0)
        assert await nothing_stands(stage)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        await stage.client.close()

    asyncio.run(main())


def test_a_late_waiter_that_gets_a_lock_in_a_place_of_another_is_shown_as_the_holder() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        late = await waiter(stage)
        await first.release()
        second = await got(late)
        holds, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with stage.client.lock("x") as lease:
                assert lease._claim.id == place.id
                holds.set()
                await go.wait()

        (place,) = (await stage.store.inner.inspect("x")).waiters
        third = asyncio.create_task(hold(), name="third")
        for _ in range(10):
            await asyncio.sleep(0)
        age(second)
        await second.release()  # to the store, which lets in the place that `late` had made
        await asyncio.wait_for(holds.wait(), PATIENCE)
        end = time.monotonic() + PATIENCE
        while Who.parse((await stage.client.inspect("x")).holders[0].who).thread != "third":
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        go.set()
        await third
        await stage.client.close()

    asyncio.run(main())


async def stands_by(stage: AsyncStage) -> asyncio.Task[aio.Lease | None]:
    """A newcomer that becomes the head while there are heirs."""
    task = asyncio.create_task(stage.client.lock("x").acquire())
    for _ in range(10):
        await asyncio.sleep(0)
    head = stage.core.cohorts._heads["x"].member
    assert head
    assert head.called is not None
    return task


def test_a_new_head_asks_the_store_when_the_last_heir_has_the_claim_for_all_who_wait_by_then() -> None:
    async def main() -> None:
        stage = AsyncStage()
        ready = await prepared(stage)
        heirs = [await behind(stage, 2), await behind(stage, 3)]
        lease = await begun(ready)
        asked = stage.store.asked.count("claim")
        late = [await stands_by(stage), await behind(stage, 1), await behind(stage, 2)]
        await lease.release()
        lease = await got(heirs[0])
        await asyncio.sleep(0)
        assert stage.store.asked.count("claim") == asked, "the head asked though there was an heir"
        with at_most(TURN / 2, "the head was not called"):
            await lease.release()
            lease = await got(heirs[1])
            while stage.store.asked.count("claim") == asked:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        for task in late:
            token = lease.token
            await lease.release()
            lease = await got(task)
            assert lease.token == token + 1
        assert stage.store.asked.count("claim") == asked + 1, "one question was enough for all of them"
        await lease.release()
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())


def test_a_head_that_stands_by_asks_when_the_turn_ends_before_its_heirs_do() -> None:
    async def main() -> None:
        stage = AsyncStage()
        ready = await prepared(stage)
        heirs = [await behind(stage, 2), await behind(stage, 3)]
        lease = await begun(ready)
        late = await stands_by(stage)
        age(lease)
        with at_most(TURN / 2, "the head was not called"):
            await lease.release()
            for task in (late, *heirs):
                await (await got(task)).release()
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())


def test_closing_wakes_a_head_that_stands_by() -> None:
    async def main() -> None:
        stage = AsyncStage()
        ready = await prepared(stage)
        heir = await behind(stage, 2)
        await begun(ready)
        late = await stands_by(stage)
        with at_most(TURN / 2, "the head was not woken"):
            await stage.client.close()
            for task in (heir, late):
                with pytest.raises(ClientClosed):
                    await task

    asyncio.run(main())


def test_a_head_that_stands_by_and_is_cancelled_leaves_its_place_to_the_next() -> None:
    async def main() -> None:
        stage = AsyncStage()
        ready = await prepared(stage)
        heir = await behind(stage, 2)
        lease = await begun(ready)
        late, later = await stands_by(stage), await behind(stage, 1)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        with at_most(TURN / 2, "nobody asked"):
            await lease.release()
            for task in (heir, later):
                await (await got(task)).release()
        assert await nothing_stands(stage)
        await stage.client.close()

    asyncio.run(main())
