"""Attacks on the keeper: it runs wherever its client is used, and sleeps when nothing is due."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Sequence

import pytest

from interlock import aio, events
from interlock._core.keeper import Keeper, Renewable
from interlock._core.lease import SIGN_AFTER_S
from interlock.blocking import Lease
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import NoAnswer, Renewal, RenewAnswer
from interlock.testing.lag import stretched
from tests.attacks.stage import Stage, eventually, raises
from tests.patience import PATIENCE


def test_a_client_whose_keeper_is_a_task_can_be_made_before_any_loop_runs() -> None:
    client = aio.connect("memory://", keeper="task")

    async def main() -> None:
        ttl = stretched(0.3)
        async with client, client.lock("x", ttl=ttl) as lease:
            await asyncio.sleep(1.7 * ttl)
            lease.check()

    asyncio.run(main())


def test_a_keeper_that_is_a_task_goes_on_in_the_next_loop() -> None:
    client = aio.connect("memory://", keeper="task")

    async def hold() -> None:
        ttl = stretched(0.3)
        async with client.lock("x", ttl=ttl) as lease:
            await asyncio.sleep(1.7 * ttl)
            lease.check()

    asyncio.run(hold())
    asyncio.run(hold())
    asyncio.run(client.close())


@pytest.mark.parametrize("how", ["let go", "granted while it was closed"])
def test_a_lease_that_is_over_but_was_never_dropped_does_not_keep_the_keeper_busy(how: str) -> None:
    stage = Stage()
    lease = stage.client.lock("x", ttl=0.05).acquire()
    assert lease
    lease._let_go()
    if how != "let go":
        lease._holding.unregister_lease(lease)
        stage.core.keeper.keep(lease)
    time.sleep(0.1)  # past its deadline
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(0.5)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2
    assert lease not in stage.core.keeper.kept()
    stage.client.close()


@pytest.mark.parametrize("what", ["its owner has ended", "the store does not answer"])
def test_an_heir_that_cannot_tell_the_store_who_it_is_does_not_keep_the_keeper_busy(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second after it has inherited a claim, a holder tells the store who it is. That may fail, or come too late."""
    for module in (
        "cohort",
        "attempt",
    ):  # a claim is passed on for 0.1 s, which a busy machine may need for one step
        monkeypatch.setattr(f"interlock._core.{module}.TURN_S", 2.0)
    stage = Stage()
    lock, heir, over = stage.client.lock("x"), list[Lease | None](), threading.Event()

    def inherit() -> None:
        heir.append(stage.client.lock("x").acquire())
        if what != "its owner has ended":
            over.wait(PATIENCE)

    first = lock.acquire()
    assert first
    thread = threading.Thread(target=inherit)
    thread.start()
    eventually(lambda: asyncio.run(stage.store.inner.inspect("x")).waiters)
    if what == "the store does not answer":
        stage.store.before["renew"] = raises(StoreUnavailable("it hangs"))
    first.release()
    eventually(lambda: heir)
    assert heir[0]
    assert heir[0]._unsigned, "it did not inherit"
    looks = 0
    take_due = stage.core.keeper._take_due

    def counted(now: float) -> list[Renewable]:
        nonlocal looks
        looks += 1
        return take_due(now)

    stage.core.keeper._take_due = counted  # type: ignore[method-assign]
    time.sleep(SIGN_AFTER_S + 1.0)
    assert 1 <= looks < 20
    over.set()
    thread.join(PATIENCE)
    stage.store.before.clear()
    stage.client.close()


def test_a_doubt_makes_every_hold_doubtful_until_it_is_verified() -> None:
    stage = Stage()
    ours = [stage.client.lock(f"x{n}").acquire() for n in range(3)]
    calm, reached = threading.Event(), threading.Event()

    def held_up(*args: object, **options: object) -> None:
        reached.set()
        assert calm.wait(PATIENCE)

    stage.store.before["renew"] = held_up
    stage.core.keeper.doubt()
    assert reached.wait(PATIENCE), "nobody asked the server that took over"
    assert [lease and lease.state.value for lease in ours] == ["doubtful"] * 3
    calm.set()
    eventually(lambda: all(lease and lease.state.value == "held" for lease in ours))
    stage.client.close()


@pytest.mark.parametrize("renew", [True, False])
def test_a_hold_that_the_new_server_does_not_know_is_lost_at_once(renew: bool) -> None:
    stage = Stage()
    lease = stage.client.lock("x", renew=renew).acquire()
    assert lease
    asyncio.run(stage.store.inner.release("x", lease._claim.id))
    stage.core.keeper.doubt()
    eventually(lambda: lease.state.value == "lost")
    stage.client.close()


def test_verifying_a_lease_that_is_not_renewed_does_not_make_it_longer() -> None:
    stage = Stage()
    lease = stage.client.lock("x", ttl=20.0, renew=False).acquire()
    assert lease
    deadline = lease.deadline
    stage.core.keeper.doubt()
    eventually(lambda: "renew" in stage.store.asked)
    eventually(lambda: lease.state.value == "held")
    assert lease.deadline == deadline
    stage.client.close()


def test_an_answer_to_a_question_from_before_the_doubt_verifies_nothing() -> None:
    stage = Stage()
    lease = stage.client.lock("x", ttl=3.0).acquire()
    assert lease
    keeper = stage.core.keeper
    seen: list[str] = []

    def doubted(*args: object, **options: object) -> None:
        """The first renewal is answered by the old server while the new one takes over."""
        if not seen:
            keeper.doubt()
        else:
            seen.append(lease.state.value)
        seen.append("asked")

    stage.store.after["renew"] = doubted
    eventually(lambda: len(seen) >= 2)
    assert seen[1] == "doubtful"
    stage.client.close()


def test_one_renewal_that_nobody_answered_leaves_the_others_renewed() -> None:
    stage = Stage()
    ttl = stretched(0.6)
    first, second = (stage.client.lock(name, ttl=ttl).acquire() for name in ("here", "away"))
    assert first
    assert second

    async def partly(renewals: Sequence[Renewal], timeout: float) -> list[RenewAnswer]:
        answers = await stage.store.inner.renew(renewals, timeout)
        return [
            NoAnswer("its shard is down") if renewal.resource == "away" else answer
            for renewal, answer in zip(renewals, answers, strict=True)
        ]

    stage.store.instead["renew"] = partly
    eventually(lambda: second.state.value == "doubtful")
    assert first.state.value == "held"
    eventually(lambda: second.state.value == "lost")
    first.check()
    with pytest.raises(StoreUnavailable, match="its shard is down"):
        lease = stage.client.lock("away too").acquire()
        assert lease
        stage.store.instead["renew"] = lambda *_: answered([NoAnswer("its shard is down")])
        lease.renew()
    stage.client.close()


async def answered(answers: list[RenewAnswer]) -> list[RenewAnswer]:
    return answers


def test_a_keeper_that_is_woken_early_renews_nothing_early() -> None:
    stage = Stage()
    lease = stage.client.lock("x", ttl=8.0).acquire()  # due after 2.7 s
    assert lease
    began = time.monotonic()
    time.sleep(2.0)
    stage.core.keeper._ring()
    time.sleep(0.2)
    early = "renew" in stage.store.asked
    assert not early or time.monotonic() - began > 2.5, "a busy machine may be so late that it was due"
    eventually(lambda: "renew" in stage.store.asked)
    stage.client.close()


def test_locks_that_are_handed_over_within_a_client_do_not_wake_its_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An heir is due within a second, to tell the store who it is; waking a thread for each would cost more than the hand-over."""
    rung = 0
    ring = Keeper._ring

    def counted(keeper: Keeper) -> None:
        nonlocal rung
        rung += 1
        ring(keeper)

    async def main() -> None:
        async with aio.connect("memory://") as client:

            async def wait() -> None:
                async with client.lock("x"):
                    pass

            async def hand_over(times: int) -> None:
                for _ in range(times):
                    async with client.lock("x"):
                        waiter = asyncio.create_task(wait())
                        await asyncio.sleep(0.002)
                    await waiter

            await hand_over(3)
            monkeypatch.setattr(Keeper, "_ring", counted)
            began = time.monotonic()
            await hand_over(60)
            assert rung <= 2 + 3 * (time.monotonic() - began), rung

    asyncio.run(main())


def test_a_keeper_that_stays_behind_says_so_now_and_then_and_not_at_each_renewal() -> None:
    """Ten thousand leases on a busy machine wrote hundreds of lines a minute."""
    stage = Stage()
    keeper = stage.core.keeper

    def told(began: float, late: float) -> int:
        for tenth in range(50):
            keeper._report_lag(began + tenth / 10, late)
        eventually(lambda: stage.events)
        return sum(isinstance(event, events.KeeperLagged) for event in stage.events)

    assert told(100.0, 0.6) == 1
    assert told(103.0, 1.1) == 1  # worse, but not twice as bad
    assert told(104.0, 1.3) == 2
    assert told(115.0, 0.6) == 3  # a while later
    stage.client.close()


class Poisoned:
    """An abandoned lease that cannot be cleaned up, whoever tries."""

    def __init__(self) -> None:
        self.tries = 0

    def _clean_up(self) -> None:
        self.tries += 1
        raise RecursionError("again and again")


@pytest.mark.parametrize("what", ["an abandoned lease", "an interrupted statement"])
def test_what_cannot_be_cleaned_up_costs_no_other_lease_and_keeps_no_other_claim_standing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    ttl = stretched(0.5)
    lease = stage.client.lock("kept", ttl=ttl).acquire()
    left = stage.client.lock("left", ttl=30).acquire()
    assert lease
    assert left
    keeper, poisoned = stage.core.keeper, Poisoned()
    if what == "an abandoned lease":
        keeper.hand_over(poisoned)
    else:
        monkeypatch.setattr(keeper._runtime, "sweep_statements", poisoned._clean_up)
    keeper.hand_over(left)
    eventually(lambda: "left" not in stage.client.scan())
    began = lease.deadline
    eventually(lambda: lease.deadline > began + 2 * ttl or lease.state.value == "lost")
    lease.check()
    assert poisoned.tries > 1
    stage.core.keeper._abandoned.clear()
    monkeypatch.undo()
    stage.client.close()


@pytest.mark.parametrize("expected", [True, False], ids=["documented", "unexpected"])
def test_an_error_that_every_renewal_meets_is_told_once(
    expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a folder that lost its rights, wrote a traceback at each try."""
    stage, tries = Stage(), 0
    failure: Exception = StoreUnfit("the disk is full") if expected else ZeroDivisionError("again")

    async def fail(*_: object) -> list[RenewAnswer]:
        nonlocal tries
        tries += 1
        raise failure

    monkeypatch.setattr(stage.core.keeper._store, "renew", fail)
    lease = stage.client.lock("x", ttl=stretched(1.5)).acquire()
    assert lease
    eventually(lambda: tries > 2 and stage.events)
    doubts = [event for event in stage.events if isinstance(event, events.Doubtful)]
    failures = [event for event in stage.events if isinstance(event, events.KeeperFailed)]
    assert (len(doubts), len(failures)) == (1, 0 if expected else 1)
    assert ("the disk is full" in str(doubts[0])) is expected
    assert "\n" not in str(doubts[0])
    stage.client.close()
