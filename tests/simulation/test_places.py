"""Waiters of a server that notices lapses only when it is asked, in virtual time: directed deaths, then seeds.

Such a waiter does not ask by itself: the renewals of its place look at what is ahead of it (`Traits.renewals_wake`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.testing.checkers import Terms, judge
from interlock.testing.scenarios import SCENARIOS
from interlock.testing.simulated_cluster import ClientProcess, RowCluster
from interlock.testing.simulation import RowSpec, campaign
from interlock.testing.weather import WEATHERS
from tests.full import FULL

TTL = 3.0  # of leases, and so of places
SOON = 0.1  # seconds for the requests of a hand-over
EACH = 5 if FULL else 1  # seeds for each pair of scenario and weather
KINDS: dict[str, Callable[[ClientProcess], Any]] = {
    "lock": lambda process: process.client.lock("r"),
    "semaphore": lambda process: process.client.semaphore("r", 2),
    "write": lambda process: process.client.rwlock("r").write(),
    "read": lambda process: process.client.rwlock("r").read(),
}


class Crowd:
    """A queue of processes, each with one waiter, in the order in which they came."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = RowCluster(seed, ttl=TTL)
        self.world = self.cluster.world
        self.inside: dict[ClientProcess, float] = {}  # since when
        self.claims: dict[ClientProcess, int] = {}  # how often each has asked

    def add(self, kind: str, *, holds: float = 1e9) -> ClientProcess:
        process = self.cluster.add_process()
        store: Any = process.core.store
        ask = store.claim

        async def claim(*args: Any) -> Any:
            self.claims[process] = self.claims.get(process, 0) + 1
            return await ask(*args)

        store.claim = claim

        async def work() -> None:
            lease = await KINDS[kind](process).acquire()
            self.inside[process] = self.world.time
            await process.runtime.sleep(holds)
            await lease.release()

        process.runtime.spawn("work", work())
        self.play(SOON)
        return process

    def play(self, seconds: float) -> None:
        self.world.run(self.world.time + seconds)
        assert not self.world.failures, self.world.failures

    def until_in(self, process: ClientProcess, within: float) -> None:
        self.world.run(self.world.time + within, lambda: process in self.inside)
        assert process in self.inside, f"{process.name} was not let in within {within} s"


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    made = Crowd()
    yield made
    found = judge(made.cluster.history, Terms(progress=1000.0))
    made.world.close()
    assert not found, [str(violation) for violation in found]


@pytest.mark.parametrize("kind", ["lock", "write"])
@pytest.mark.parametrize("later", [0.0, 0.4, 1.3, 7.7])
def test_the_dead_ahead_of_a_waiter_are_passed_over_together(crowd: Crowd, kind: str, later: float) -> None:
    dead = [crowd.add(kind) for _ in range(5)]
    crowd.play(0.2 * TTL)  # so that its place is not renewed right after theirs have lapsed
    waiter, behind = crowd.add(kind), crowd.add(kind)
    crowd.play(later)
    for process in dead:
        process.kill()
    crowd.until_in(waiter, TTL + SOON)
    assert behind not in crowd.inside


def test_a_waiter_that_dies_when_it_is_let_in_delays_the_next_by_one_ttl(crowd: Crowd) -> None:
    """The next one was never told that it is the first."""
    first = crowd.add("lock", holds=5 * TTL)
    second, third = crowd.add("lock"), crowd.add("lock")
    crowd.play(4 * TTL)
    second.pause()
    crowd.play(TTL)
    assert first in crowd.inside
    second.kill()
    crowd.until_in(third, TTL + SOON)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_first_waiter_of_a_semaphore_watches_every_holder(crowd: Crowd, victim: int) -> None:
    holders = [crowd.add("semaphore"), crowd.add("semaphore")]
    waiter = crowd.add("semaphore")
    crowd.play(3 * TTL)
    holders[victim].kill()
    crowd.until_in(waiter, TTL + SOON)


def test_readers_behind_a_writer_that_dies_are_let_in_together(crowd: Crowd) -> None:
    writer = crowd.add("write")
    readers = [crowd.add("read") for _ in range(5)]
    crowd.play(2 * TTL)
    writer.kill()
    for reader in readers:
        crowd.until_in(reader, TTL + SOON)


def test_a_waiter_that_was_cut_off_for_longer_than_its_place_lives_is_let_in_in_the_end(crowd: Crowd) -> None:
    crowd.add("lock", holds=6 * TTL)
    waiter = crowd.add("lock")
    waiter.link.cut()
    crowd.play(3 * TTL)
    waiter.link.heal()
    crowd.until_in(waiter, 5 * TTL)


def test_a_waiter_whose_queue_is_well_asks_no_second_time(crowd: Crowd) -> None:
    crowd.add("lock")
    waiters = [crowd.add("lock") for _ in range(5)]
    crowd.play(20 * TTL)
    assert [crowd.claims[waiter] for waiter in waiters] == [1] * 5


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS if FULL else ("lock", "rwlock", "semaphore", "cohort"))
def test_nothing_that_must_never_happen_does(scenario: str) -> None:
    specs = [
        RowSpec(scenario, weather, 1000 * list(WEATHERS).index(weather) + number)
        for weather in WEATHERS
        for number in range(EACH)
    ]
    guilty = [str(verdict) for verdict in campaign(specs) if verdict.violations]
    assert not guilty, "\n" + "\n".join(guilty)
