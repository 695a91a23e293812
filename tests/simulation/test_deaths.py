"""Those who wait for each other die, pause or are cut off, each at the worst moment, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interlock.errors import BrokenBarrier
from interlock.testing.simulated_cluster import ClientProcess
from interlock.testing.world import SimulatedJob
from tests.simulation.scene import Scene

LIFE = 10.0  # seconds that the presence of the dead lives on
LOOK = 5.0  # seconds between two looks of those who wait


class Meeting:
    """A barrier on a cluster, and what each party was told."""

    def __init__(self, parties: int) -> None:
        self.scene = Scene(ttl=30.0)
        self.parties = parties
        self.told: list[object] = []

    def node(self) -> ClientProcess:
        return self.scene.cluster.add_process()

    def arrive(
        self, node: ClientProcess, action: Callable[[], object] | None = None, timeout: float | None = None
    ) -> SimulatedJob:
        async def wait() -> None:
            try:
                self.told.append(await node.client.barrier("b", self.parties, action).wait(timeout))
            except BrokenBarrier:
                self.told.append("broken")

        job = self.scene.start(node, wait())
        self.scene.play(0.5)
        return job

    def waiting(self) -> int:
        seen: list[int] = []

        async def look() -> None:
            seen.append(await watcher.client.barrier("b", self.parties).n_waiting())

        watcher = self.node()
        self.scene.play(1.0, self.scene.start(watcher, look()))
        return seen[0]


def test_the_dead_do_not_count_at_a_barrier() -> None:
    meeting = Meeting(3)
    for _ in range(2):
        node = meeting.node()
        meeting.arrive(node)
        node.kill()
    meeting.scene.play(LIFE)
    assert meeting.waiting() == 0
    living = [meeting.arrive(meeting.node()) for _ in range(2)]
    assert meeting.told == []
    assert meeting.waiting() == 2
    living.append(meeting.arrive(meeting.node()))
    meeting.scene.play(1.0, *living)
    assert sorted(map(str, meeting.told)) == ["0", "1", "2"], "each party has an index of its own"


def test_whoever_leaves_a_barrier_leaves_its_index_to_the_next() -> None:
    meeting = Meeting(2)
    first = meeting.arrive(meeting.node())
    first.cancel()
    meeting.scene.world.run(meeting.scene.world.time + 1.0)
    parties = [meeting.arrive(meeting.node()) for _ in range(2)]
    meeting.scene.play(1.0, *parties)
    assert sorted(map(str, meeting.told)) == ["0", "1"]


def test_a_death_in_the_action_breaks_the_barrier_soon() -> None:
    meeting = Meeting(3)
    others = [meeting.arrive(meeting.node()) for _ in range(2)]
    actor = meeting.node()

    async def act() -> None:
        await actor.runtime.sleep(1000.0)

    meeting.arrive(actor, act)
    late = meeting.arrive(meeting.node())  # for the next generation
    meeting.scene.play(3 * LIFE)
    assert meeting.told == [], "a long action is no death"
    actor.kill()
    meeting.scene.play(LIFE + LOOK, *others, late)
    assert meeting.told == ["broken"] * 3


def test_an_actor_that_was_paused_for_long_does_not_let_anybody_through() -> None:
    meeting = Meeting(2)
    other, actor = meeting.node(), meeting.node()
    meeting.arrive(other)

    async def act() -> None:
        await actor.runtime.sleep(1.0)

    job = meeting.arrive(actor, act)
    actor.pause()
    meeting.scene.play(LIFE + LOOK)
    assert meeting.told == ["broken"]
    actor.resume()
    meeting.scene.play(5.0, job)
    assert meeting.told == ["broken", "broken"]


def test_a_party_that_was_paused_is_told_if_the_others_went_on_without_it() -> None:
    meeting = Meeting(2)
    paused = meeting.node()
    job = meeting.arrive(paused)
    paused.pause()
    meeting.scene.play(LIFE)
    others = [meeting.arrive(meeting.node()) for _ in range(2)]
    meeting.scene.play(1.0, *others)
    assert sorted(map(str, meeting.told)) == ["0", "1"]
    paused.resume()
    meeting.scene.play(LOOK + 1.0, job)
    assert meeting.told[2:] == ["broken"]


def test_a_party_that_was_paused_arrives_again_if_the_others_still_wait() -> None:
    meeting = Meeting(3)
    paused = meeting.node()
    job = meeting.arrive(paused)
    paused.pause()
    meeting.scene.play(LIFE)
    other = meeting.arrive(meeting.node())
    assert meeting.waiting() == 1
    paused.resume()
    meeting.scene.play(LOOK + 1.0)
    assert meeting.waiting() == 2
    last = meeting.arrive(meeting.node())
    meeting.scene.play(1.0, job, other, last)
    assert sorted(map(str, meeting.told)) == ["0", "1", "2"]


def test_parties_meet_though_the_store_was_away_for_longer_than_their_presence_lives() -> None:
    meeting = Meeting(3)
    nodes = [meeting.node() for _ in range(2)]
    jobs = [meeting.arrive(node) for node in nodes]
    server = meeting.scene.cluster.server
    server.space.queues.clear()  # as if all claims had lapsed meanwhile; the register stands
    meeting.scene.play(2 * LIFE)
    assert meeting.told == []
    assert meeting.waiting() == 2
    jobs.append(meeting.arrive(meeting.node()))
    meeting.scene.play(1.0, *jobs)
    assert sorted(map(str, meeting.told)) == ["0", "1", "2"]


def test_a_store_that_lost_its_memory_lets_nobody_through_alone() -> None:
    meeting = Meeting(3)
    job = meeting.arrive(meeting.node())
    server = meeting.scene.cluster.server
    server.space.queues.clear()
    server.space.registers.clear()
    meeting.scene.play(LIFE, job)
    assert meeting.told == ["broken"]


# ---- conditions -----------------------------------------------------------------------


class Box:
    """A condition on a cluster, and who was notified."""

    def __init__(self) -> None:
        self.scene = Scene(ttl=30.0)
        self.notified: list[ClientProcess] = []

    def node(self) -> ClientProcess:
        return self.scene.cluster.add_process()

    def wait(self, timeout: float | None = None) -> tuple[ClientProcess, SimulatedJob]:
        node = self.node()

        async def wait() -> None:
            ready = node.client.condition("c")
            async with ready:
                if await ready.wait(timeout):
                    self.notified.append(node)

        job = self.scene.start(node, wait())
        self.scene.play(0.5)
        return node, job

    def notify(self, count: int = 1, hold: float = 0.0) -> None:
        notifier = self.node()

        async def notify() -> None:
            ready = notifier.client.condition("c")
            async with ready:
                await ready.notify(count)
                await notifier.runtime.sleep(hold)

        self.scene.play(hold + 60.0, self.scene.start(notifier, notify()))

    def calls(self) -> list[str]:
        queue = self.scene.cluster.server.space.queues.get("c\x1fwaiters", [])
        return [entry.note for entry in queue if entry.note]


def test_a_notification_of_the_dead_goes_to_the_next() -> None:
    box = Box()
    dead, _ = box.wait()
    second, job = box.wait()
    third, _ = box.wait()
    dead.kill()
    box.notify()
    box.scene.play(LOOK + 3.0, job)
    assert box.notified == [second]
    box.scene.play(3 * LIFE)
    assert box.notified == [second], "one notification wakes one"
    assert box.calls() == []
    box.notify()
    box.scene.play(1.0)
    assert box.notified == [second, third]


def test_a_notification_finds_the_living_behind_many_dead() -> None:
    box = Box()
    for _ in range(3):
        box.wait()[0].kill()
    living, job = box.wait()
    last, _ = box.wait()
    box.notify()
    box.scene.play(2 * LIFE, job)
    assert box.notified == [living]
    box.notify()
    box.scene.play(1.0)
    assert box.notified == [living, last]


def test_who_dies_before_it_has_the_lock_again_keeps_no_notification() -> None:
    box = Box()
    dead, _ = box.wait()
    second, job = box.wait()
    holder = box.node()

    async def notify_and_hold() -> None:
        ready = holder.client.condition("c")
        async with ready:
            await ready.notify()
            await holder.runtime.sleep(1.0)
            dead.kill()
            await holder.runtime.sleep(1.0)

    box.scene.play(5.0, box.scene.start(holder, notify_and_hold()))
    box.scene.play(4 * LIFE, job)
    assert box.notified == [second]


def test_a_waiter_that_needs_long_to_get_the_lock_keeps_its_notification() -> None:
    box = Box()
    first, job = box.wait()
    box.wait()
    box.notify(hold=6 * LIFE)
    box.scene.play(1.0, job)
    box.scene.play(2 * LIFE)
    assert box.notified == [first], "it lived, so nobody was notified in its place"


def test_who_came_after_a_notification_is_not_woken_by_it() -> None:
    box = Box()
    dead, _ = box.wait()
    also_dead, _ = box.wait()
    dead.kill()
    box.notify()
    also_dead.kill()
    late, _ = box.wait()
    box.scene.play(4 * LIFE)
    assert box.notified == []
    assert box.calls() == []
    box.notify()
    box.scene.play(1.0)
    assert box.notified == [late]


def test_a_waiter_that_was_paused_wakes_for_nothing_and_nobody_waits_for_it() -> None:
    box = Box()
    paused, job = box.wait()
    second, other = box.wait()
    box.wait()
    paused.pause()
    box.notify()
    box.scene.play(LOOK + 3.0, other)
    paused.resume()
    box.scene.play(LOOK + 1.0, job)
    assert box.notified == [second, paused]


@pytest.mark.parametrize("count", [2, 5])
def test_who_notifies_everybody_leaves_no_calls(count: int) -> None:
    box = Box()
    waiting = [box.wait() for _ in range(2)]
    box.notify(count)
    assert box.calls() == []
    box.scene.play(1.0, *(job for _, job in waiting))
    # In the order in which they ask for the lock again: nobody promises another.
    assert sorted(map(id, box.notified)) == sorted(id(node) for node, _ in waiting)
