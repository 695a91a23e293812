"""Faults that hurt users of other locks, each on purpose and at the worst moment, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interlock import events
from interlock.aio import Lease
from interlock.errors import AcquireTimeout, LeaseLost, StaleToken, StoreUnavailable
from interlock.testing.checkers import Terms, judge
from interlock.testing.faults import Faults
from interlock.testing.simulated_cluster import ClientProcess
from tests.simulation.scene import SCENES, TTL, Scene


@pytest.fixture(autouse=True)
def _judged() -> Iterator[None]:
    """Whatever a test looks at itself, nothing that must never happen may have happened in it."""
    SCENES.clear()
    yield
    for scene in SCENES:
        found = judge(scene.cluster.history, Terms(exclusive=scene.exclusive, progress=100.0))
        scene.world.close()
        assert not found, [str(violation) for violation in found]


def test_a_lost_reply_to_an_acquire_is_recognised_as_our_own_claim() -> None:
    scene = Scene()
    node = scene.cluster.add_process()
    seen: list[int] = []

    async def take() -> None:
        node.link.faults = Faults(lose_reply=1.0, timeout=0.2)
        waiting = node.runtime.spawn("mend", mend())
        lease = await node.client.lock("r").acquire(timeout=5)
        assert lease is not None
        seen.append(lease.token)
        await node.runtime.join(waiting, 1.0)

    async def mend() -> None:
        await node.runtime.sleep(0.1)  # the claim was applied, its reply is lost
        (entry,) = scene.cluster.server.space.queues["r"]
        seen.append(entry.token)
        node.link.heal()

    scene.play(5.0, scene.start(node, take()))
    assert seen[0] == seen[1], "the second try entered anew"


def test_a_renewal_after_the_lease_lapsed_and_another_took_and_released_it_recreates_nothing() -> None:
    scene = Scene()
    late, other = scene.cluster.add_process(), scene.cluster.add_process()
    refused: list[str] = []

    async def hold() -> None:
        lease = await late.client.lock("r", renew=False).acquire()
        assert lease is not None
        await late.runtime.sleep(2 * TTL)
        with pytest.raises(LeaseLost):
            await lease.renew()
        refused.append("renew")

    async def pass_through() -> None:
        async with other.client.lock("r"):
            pass

    holder = scene.start(late, hold())
    scene.play(0.1)
    scene.play(2 * TTL, scene.start(other, pass_through()))
    scene.play(2 * TTL, holder)
    assert refused == ["renew"]
    assert not scene.cluster.server.space.queues


def test_a_black_holed_holder_is_told_before_the_store_forgets() -> None:
    scene = Scene()
    node = scene.cluster.add_process()
    told: list[float] = []

    async def hold() -> None:
        lease = await node.client.lock("r").acquire()
        assert lease is not None
        node.link.cut()
        await lease.lost.wait()
        told.append(scene.world.time)
        (entry,) = scene.cluster.server.space.queues["r"]
        assert entry.lapses > scene.cluster.server.now(), "the store had forgotten it already"

    scene.play(2 * TTL, scene.start(node, hold()))
    assert told
    assert told[0] <= TTL


def test_one_lost_answer_to_a_renewal_does_not_lose_the_lease() -> None:
    scene = Scene()  # requests may take the whole 5 s, longer than the ttl
    node = scene.cluster.add_process()

    async def hold() -> None:
        async with node.client.lock("r") as lease:
            await node.runtime.sleep(0.1)
            node.link.cut()
            await node.runtime.sleep(TTL / 3)  # the first renewal is swallowed
            node.link.heal()
            await node.runtime.sleep(3 * TTL)
            lease.check()

    scene.play(5 * TTL, scene.start(node, hold()))


def test_a_slow_reply_shortens_the_lease_instead_of_lengthening_it() -> None:
    """Whatever the network takes, for the claim or for a renewal, the holder's deadline comes before the store's."""
    for seed in range(40):
        scene = Scene(seed, faults=Faults(delay=0.5, long=2.0))
        node = scene.cluster.add_process()

        async def hold(node: ClientProcess = node, scene: Scene = scene) -> None:
            lease = await node.client.lock("r").acquire()
            assert lease is not None
            server = scene.cluster.server
            while lease.remaining() > 0:
                (entry,) = server.space.queues["r"]
                assert node.runtime.true_time(lease.deadline) < server.true_time(entry.lapses)
                await node.runtime.sleep(0.05)

        scene.start(node, hold())
        scene.play(20.0)


def test_a_paused_holder_meets_the_loss_first_and_its_late_write_is_refused() -> None:
    scene = Scene()
    paused, other = scene.cluster.add_process(), scene.cluster.add_process()
    shared = scene.cluster.guarded("r")
    taken: list[Lease] = []
    met: list[str] = []

    async def hold() -> None:
        lease = await paused.client.lock("r").acquire()
        assert lease is not None
        taken.append(lease)
        value = shared.read(lease.token)
        await paused.runtime.sleep(0.5)  # SIGSTOP falls in here
        with pytest.raises(LeaseLost):
            lease.check()
        with pytest.raises(StaleToken):
            shared.write(lease.token, value + 1, "late")
        met.append("both")

    async def take_over() -> None:
        async with other.client.lock("r") as lease:
            shared.write(lease.token, shared.read(lease.token) + 1, "in time")

    holder = scene.start(paused, hold())
    scene.play(0.3)
    paused.pause()
    scene.play(2 * TTL, scene.start(other, take_over()))
    with pytest.raises(LeaseLost):  # the clock alone says so: its keeper has not run yet
        taken[0].check()
    paused.resume()
    scene.play(1.0, holder)
    assert met == ["both"]
    assert shared.value == 1


def test_a_renewal_answered_after_the_deadline_does_not_bring_a_lease_back() -> None:
    """The process stops between the question and the answer, and goes on when its own deadline has passed."""
    scene = Scene()
    node = scene.cluster.add_process()
    held: list[Lease] = []
    met: list[str] = []

    async def hold() -> None:
        lease = await node.client.lock("r").acquire()
        assert lease is not None
        held.append(lease)
        while scene.world.time < TTL:
            await node.runtime.sleep(0.2)
        with pytest.raises(LeaseLost):
            lease.check()
        met.append("the loss")

    job = scene.start(node, hold())
    scene.play(0.1)
    (entry,) = scene.cluster.server.space.queues["r"]
    first = entry.lapses
    scene.world.run(TTL, lambda: entry.lapses > first)  # renewed there, and the answer is on its way
    node.pause()
    scene.play(TTL - scene.world.time + 0.2)
    node.resume()
    scene.play(1.0, job)
    assert met == ["the loss"]


@pytest.mark.parametrize("dead", [1, 50])
def test_dead_waiters_cost_one_place_ttl_however_many_they_are(dead: int) -> None:
    scene = Scene(ttl=30.0)
    holder, victim, last = (
        scene.cluster.add_process(),
        scene.cluster.add_process(),
        scene.cluster.add_process(),
    )
    got: list[float] = []

    async def hold() -> None:
        async with holder.client.lock("r"):
            await holder.runtime.sleep(1.0)

    async def queue_up(node: ClientProcess) -> None:
        async with node.client.lock("r"):
            if node is last:
                got.append(scene.world.time)

    scene.start(holder, hold())
    scene.play(0.1)
    for _ in range(dead):
        scene.start(victim, queue_up(victim))
    scene.play(0.1)
    waiter = scene.start(last, queue_up(last))
    scene.play(0.3)
    killed = scene.world.time
    victim.kill()
    scene.play(30.0, waiter)
    place_ttl = 10.0
    assert got[0] - killed <= place_ttl + 0.5


def test_no_renewal_reaches_the_store_after_its_release() -> None:
    """The keeper is in the middle of a renewal when the holder lets go, at every offset."""
    for seed in range(200):
        scene = Scene(seed, ttl=0.3)
        node = scene.cluster.add_process()

        async def hold(node: ClientProcess = node, seed: int = seed) -> None:
            for turn in range(5):
                async with node.client.lock("r"):
                    await node.runtime.sleep(0.0995 + 0.00001 * seed + 0.00003 * turn)

        scene.play(3.0, scene.start(node, hold()))
        touches = [record for record in scene.cluster.history if record.call == "touch"]
        assert not touches
        assert not scene.cluster.server.space.queues


@pytest.mark.parametrize("loss", ["forget", "evict"])
def test_tokens_rise_across_every_loss_of_the_stores_memory(loss: str) -> None:
    scene = Scene(exclusive=False)
    node = scene.cluster.add_process()
    tokens: list[int] = []

    async def take() -> None:
        for _ in range(5):
            lease = await node.client.lock("r").acquire(timeout=1)
            assert lease is not None
            tokens.append(lease.token)
            if loss == "forget":
                scene.cluster.server.forget()
            else:
                await node.client.evict("r", reason="test")

    scene.play(10.0, scene.start(node, take()))
    assert tokens == sorted(set(tokens))


def test_a_wall_clock_set_back_does_not_move_tokens_back() -> None:
    scene = Scene()
    node = scene.cluster.add_process()
    tokens: list[int] = []

    async def take() -> None:
        for _ in range(3):
            async with node.client.lock("r") as lease:
                tokens.append(lease.token)
            scene.cluster.server.jump_wall(-3600)

    scene.play(5.0, scene.start(node, take()))
    assert tokens == sorted(set(tokens))


def test_the_keeper_stops_renewing_for_a_worker_that_died() -> None:
    scene = Scene(ttl=1.0)
    worker, waiter = scene.cluster.add_process(), scene.cluster.add_process()
    got: list[float] = []

    async def leak() -> None:
        await worker.client.lock("r").acquire()  # and ends without a release

    async def wait() -> None:
        async with waiter.client.lock("r"):
            got.append(scene.world.time)

    scene.play(1.0, scene.start(worker, leak()))
    scene.play(5.0, scene.start(waiter, wait()))
    assert got[0] < 2.5


def test_the_keeper_survives_whatever_a_store_raises() -> None:
    scene = Scene(ttl=1.0)
    node = scene.cluster.add_process()

    async def hold() -> None:
        async with node.client.lock("r") as lease:
            await node.runtime.sleep(0.1)
            node.link.faults = Faults(break_down=1.0)
            await node.runtime.sleep(0.4)  # at least one renewal raises
            node.link.heal()
            await node.runtime.sleep(5.0)
            lease.check()

    scene.play(10.0, scene.start(node, hold()))
    failed = [event for event in node.events if isinstance(event, events.KeeperFailed)]
    assert failed
    assert failed[0].exception is not None, "the log has its traceback"


def test_a_server_that_hangs_is_not_taken_for_an_overloaded_machine() -> None:
    """An operator who reads that the machine is overloaded looks at the wrong machine."""
    scene = Scene(exclusive=False)
    node = scene.cluster.add_process()

    async def hold() -> None:
        leases = [await node.client.lock(f"r{ttl}", ttl=ttl).acquire() for ttl in (9.0, 10.0, 12.0, 30.0)]
        assert all(leases)
        node.link.cut()
        await node.runtime.sleep(25.0)

    scene.play(30.0, scene.start(node, hold()))
    kinds = {type(event) for event in node.events}
    assert events.Doubtful in kinds
    assert events.KeeperLagged not in kinds, [str(event) for event in node.events]


def test_a_process_that_was_paused_is_told_so() -> None:
    scene = Scene(ttl=30.0)
    node = scene.cluster.add_process()

    async def hold() -> None:
        async with node.client.lock("r"):
            await node.runtime.sleep(40.0)

    holder = scene.start(node, hold())
    scene.play(12.0)  # it was renewed once
    node.pause()
    scene.play(15.0)
    node.resume()
    scene.play(60.0, holder)
    (lagged,) = [event for event in node.events if isinstance(event, events.KeeperLagged)]
    assert 6.0 < lagged.seconds < 9.0


def test_a_waiter_that_timed_out_does_not_hold_up_the_queue() -> None:
    scene = Scene(ttl=30.0)
    holder, hasty, patient = (
        scene.cluster.add_process(),
        scene.cluster.add_process(),
        scene.cluster.add_process(),
    )
    got: list[float] = []

    async def hold() -> None:
        async with holder.client.lock("r"):
            await holder.runtime.sleep(1.0)

    async def give_up() -> None:
        with pytest.raises(AcquireTimeout) as caught:
            async with hasty.client.lock("r", timeout=0.3):
                raise AssertionError("the body ran without the lease")
        assert [standing.token for standing in caught.value.holders]
        await hasty.runtime.sleep(100.0)  # lives on, so only an explicit take-back frees its place

    async def wait() -> None:
        async with patient.client.lock("r"):
            got.append(scene.world.time)

    scene.start(holder, hold())
    scene.play(0.1)
    scene.start(hasty, give_up())
    scene.play(0.1)
    scene.play(5.0, scene.start(patient, wait()))
    assert got[0] < 1.2


def test_a_call_returns_in_time_though_the_store_does_not_answer() -> None:
    scene = Scene()
    node = scene.cluster.add_process()
    took: list[float] = []

    async def ask() -> None:
        for timeout in (0.0, 0.3, 2.0):
            began = scene.world.time
            with pytest.raises(StoreUnavailable):
                await node.client.lock("r").acquire(timeout=timeout)
            took.append(scene.world.time - began - timeout)

    node.link.cut()
    scene.play(10.0, scene.start(node, ask()))
    assert max(took) <= 0.25


def test_a_waiter_keeps_its_place_while_it_waits() -> None:
    """Behind a long hold, the one that came first is served first: its place is refreshed in time."""
    scene = Scene(ttl=30.0)
    holder, first, second = (
        scene.cluster.add_process(),
        scene.cluster.add_process(),
        scene.cluster.add_process(),
    )
    order: list[str] = []

    async def hold() -> None:
        async with holder.client.lock("r"):
            await holder.runtime.sleep(46.0)

    async def wait(node: ClientProcess) -> None:
        async with node.client.lock("r"):
            order.append(node.name)

    scene.start(holder, hold())
    scene.play(0.1)
    waiting = [scene.start(first, wait(first))]
    scene.play(0.1)
    first.link.faults = Faults(deafen=1.0)  # it hears nothing and looks again only when something lapses
    scene.play(20.0)
    waiting.append(scene.start(second, wait(second)))
    scene.play(60.0, *waiting)
    assert order == [first.name, second.name]


def test_a_grant_that_is_heard_of_too_late_is_asked_for_again() -> None:
    """Let in while its process was stopped, a waiter wakes up with the news after its place has lapsed."""
    scene = Scene()
    scene.cluster.server.pushes = True
    holder, stopped, third = (
        scene.cluster.add_process(),
        scene.cluster.add_process(),
        scene.cluster.add_process(),
    )

    async def hold(node: ClientProcess, seconds: float) -> None:
        async with node.client.lock("r"):
            await node.runtime.sleep(seconds)

    jobs = [scene.start(holder, hold(holder, 1.0))]
    scene.play(0.1)
    jobs.append(scene.start(stopped, hold(stopped, 1.0)))
    scene.play(0.1)
    jobs.append(scene.start(third, hold(third, 10.0)))
    scene.play(0.1)
    stopped.pause()
    scene.play(TTL + 2.0)
    stopped.resume()
    scene.play(20.0, *jobs)


def test_a_multilock_that_gives_up_holds_none_of_them() -> None:
    scene = Scene(ttl=30.0)
    holder, hasty, third = (
        scene.cluster.add_process(),
        scene.cluster.add_process(),
        scene.cluster.add_process(),
    )

    async def hold() -> None:
        async with holder.client.lock("b"):
            await holder.runtime.sleep(5.0)

    async def give_up() -> None:
        assert await hasty.client.multilock(["a", "b", "c"]).acquire(timeout=0.5) is None
        await hasty.runtime.sleep(100.0)  # lives on, so only an explicit take-back frees the first

    async def take() -> None:
        async with third.client.lock("a", timeout=0.0):
            pass

    scene.start(holder, hold())
    scene.play(0.1)
    scene.start(hasty, give_up())
    scene.play(1.0)
    scene.play(1.0, scene.start(third, take()))


def test_a_reader_does_not_pass_a_writer_that_waits() -> None:
    scene = Scene(ttl=30.0)
    nodes = [scene.cluster.add_process() for _ in range(3)]
    order: list[str] = []

    async def read(node: ClientProcess, seconds: float) -> None:
        async with node.client.rwlock("w").read():
            order.append(f"{node.name} reads")
            await node.runtime.sleep(seconds)

    async def write(node: ClientProcess) -> None:
        async with node.client.rwlock("w").write():
            order.append(f"{node.name} writes")

    jobs = [scene.start(nodes[0], read(nodes[0], 1.0))]
    scene.play(0.1)
    jobs.append(scene.start(nodes[1], write(nodes[1])))
    scene.play(0.1)
    jobs.append(scene.start(nodes[2], read(nodes[2], 0.1)))
    scene.play(5.0, *jobs)
    assert order == ["p1 reads", "p2 writes", "p3 reads"]


def test_a_lost_lease_cancels_the_body_before_the_store_forgets() -> None:
    scene = Scene()
    node = scene.cluster.add_process()
    node.runtime.style = "tasks"
    ended: list[float] = []

    async def hold() -> None:
        with pytest.raises(LeaseLost):
            async with node.client.lock("r"):
                node.link.cut()
                try:
                    await node.runtime.sleep(100.0)
                finally:
                    ended.append(scene.world.time)

    scene.play(2 * TTL, scene.start(node, hold()))
    assert ended[0] < TTL


def test_an_update_whose_fate_nobody_knows_is_not_applied_twice() -> None:
    """Applied, its reply lost, another wrote since: the store cannot recognise the repetition any more."""
    scene = Scene(faults=Faults(timeout=0.2))
    mine, other = scene.cluster.add_process(), scene.cluster.add_process()
    known: list[str] = []

    def count(value: int | None) -> int:
        if value is not None:  # what follows is the write: it is applied, and nobody hears of it
            mine.link.faults = Faults(lose_reply=1.0, timeout=0.2)
            scene.start(other, write_over())
        return (value or 0) + 1

    async def write_over() -> None:
        await other.runtime.sleep(0.1)
        await other.client.register("n").update(lambda value: value + 10)
        mine.link.heal()

    async def update() -> None:
        await mine.client.register("n").update(count)
        with pytest.raises(StoreUnavailable):
            await mine.client.register("n").update(count)
        known.append("nobody knows")

    scene.play(10.0, scene.start(mine, update()))
    assert known == ["nobody knows"]
    assert scene.cluster.server.space.registers["register\x1fn"].value == "12"


def test_a_late_copy_of_a_waiters_own_claim_does_not_hide_its_notification() -> None:
    scene = Scene()
    waiter, waker = scene.cluster.add_process(), scene.cluster.add_process()
    woken: list[bool] = []

    async def wait() -> None:
        condition = waiter.client.condition("c")
        async with condition:
            woken.append(await condition.wait(60.0))

    async def wake() -> None:
        space = scene.cluster.server.space
        (entry,) = space.queues["c\x1fwaiters"]
        condition = waker.client.condition("c")
        async with condition:
            await condition.notify()
        await scene.cluster.server.store(waker.runtime).claim(entry.claim)

    waiter.link.faults = Faults(deafen=1.0)
    waiting = scene.start(waiter, wait())
    scene.play(0.5)
    scene.play(1.0, scene.start(waker, wake()))
    scene.play(20.0, waiting)
    assert woken == [True]
    scene.play(1.0)
    assert not scene.cluster.server.space.queues
