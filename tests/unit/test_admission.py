"""The one rule and the watch rule: who may enter, whom the others watch, and that nobody is left behind."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock._core.admission import admitted, let_in_matters, retry_after, to_watch
from interlock.model import EVERYTHING

weights = st.lists(st.integers(0, 5), max_size=12)


@given(weights, st.integers(1, 5))
def test_the_front_that_fits_is_in_and_the_next_would_not_fit(permits: list[int], capacity: int) -> None:
    inside = admitted(permits, capacity)
    assert sum(permits[:inside]) <= capacity
    assert inside == len(permits) or sum(permits[: inside + 1]) > capacity


@given(weights, st.integers(1, 5), st.data())
def test_who_leaves_never_pushes_anybody_out(permits: list[int], capacity: int, data: st.DataObject) -> None:
    if not permits:
        return
    leaving = data.draw(st.integers(0, len(permits) - 1))
    inside = admitted(permits, capacity)
    rest = permits[:leaving] + permits[leaving + 1 :]
    assert admitted(rest, capacity) >= inside - (leaving < inside)


@pytest.mark.parametrize(
    ("permits", "capacity", "inside"),
    [
        ([], 1, 0),
        ([1, 1, 1], 1, 1),  # a mutex
        ([1, 1, 1, 1], 3, 3),  # a semaphore
        ([2, 3, 1], 4, 1),  # the heavy one is not overtaken
        ([1, 1, EVERYTHING, 1], EVERYTHING, 2),  # readers, and a writer nobody passes
        ([EVERYTHING, 1], EVERYTHING, 1),
        ([1, 0, 1, 0], 1, 2),  # no permits at all: in its turn
    ],
)
def test_the_rule_makes_every_lock(permits: list[int], capacity: int, inside: int) -> None:
    assert admitted(permits, capacity) == inside


@given(weights, st.integers(1, 5))
def test_a_waiter_watches_claims_ahead_of_it(drawn: list[int], capacity: int) -> None:
    permits = [min(weight, capacity) for weight in drawn]  # a heavier one is refused before it gets here
    for place in range(admitted(permits, capacity), len(permits)):
        watched = to_watch(permits, place, capacity)
        assert len(watched) > 0
        assert all(0 <= ahead < place for ahead in watched)


@given(st.lists(st.just(1), min_size=2, max_size=12))
def test_a_mutex_has_no_herd(permits: list[int]) -> None:
    for place in range(1, len(permits)):
        assert to_watch(permits, place, 1) == range(place - 1, place)


def test_a_waiter_is_told_when_what_it_watches_lapses() -> None:
    assert retry_after([1, 1, 1], [7.0, 3.0, 5.0], 2, 1) == 3.0
    assert retry_after([1, 1, 1], [7.0, 3.0, 5.0], 2, 2) == 3.0
    assert retry_after([EVERYTHING, 1, 1], [7.0, 3.0, 5.0], 2, EVERYTHING) == 7.0


# ---- no polling: a waiter looks again only when something it watches leaves or is let in ----------------


Parked = tuple[set[int], set[str], Coroutine[Any, Any, None]]


@types.coroutine
def pause(what: object) -> Generator[object, None, None]:
    yield what


class Crowd:
    """Clients over one queue that wake each other by the watch rule alone; a missed wake-up strands one."""

    def __init__(self, seed: int, capacity: int) -> None:
        self.chance = random.Random(seed)
        self.capacity = capacity
        self.queue: list[tuple[int, int]] = []
        self.ready: list[Coroutine[Any, Any, None]] = []
        self.parked: dict[int, Parked] = {}
        self.wakes = 0
        self.done = 0

    def wake(self, number: int, event: str) -> None:
        for waiter, (watched, events, job) in list(self.parked.items()):
            if number in watched and event in events:
                del self.parked[waiter]
                self.ready.append(job)
                self.wakes += 1

    async def client(self, number: int, permits: int, patient: bool) -> None:
        me, waited = (number, permits), False
        self.queue.append(me)
        while True:
            place, all_permits = self.queue.index(me), [each for _, each in self.queue]
            if place < admitted(all_permits, self.capacity):
                break
            if waited and not patient:  # it gives up instead
                self.leave(me)
                return
            watched = to_watch(all_permits, place, self.capacity)
            matters = let_in_matters(all_permits, place, self.capacity)
            waited = True
            await pause(
                (number, {self.queue[i][0] for i in watched}, {"left", "let in"} if matters else {"left"})
            )
        if waited:
            self.wake(number, "let in")
        for _ in range(self.chance.randrange(4)):
            await pause(None)
        self.leave(me)

    def leave(self, me: tuple[int, int]) -> None:
        self.queue.remove(me)
        self.wake(me[0], "left")
        self.done += 1

    def run(self) -> None:
        while self.ready:
            job = self.ready.pop(self.chance.randrange(len(self.ready)))
            try:
                what: Any = job.send(None)
            except StopIteration:
                continue
            if what is None:
                self.ready.append(job)
            else:
                self.parked[what[0]] = (what[1], what[2], job)


KINDS: dict[str, tuple[int, Callable[[random.Random], int]]] = {
    "lock": (1, lambda chance: 1),
    "semaphore": (3, lambda chance: 1),
    "weighted": (4, lambda chance: chance.randint(1, 4)),
    "with gifts": (3, lambda chance: chance.randint(0, 2)),
    "rwlock": (EVERYTHING, lambda chance: chance.choice([1, 1, 1, EVERYTHING])),
}
CLIENTS = 12


def crowds(kind: str, impatience: float) -> Iterator[Crowd]:
    capacity, weigh = KINDS[kind]
    for seed in range(200):
        crowd, chance = Crowd(seed, capacity), random.Random(seed)
        for number in range(CLIENTS):
            crowd.ready.append(crowd.client(number, weigh(chance), chance.random() >= impatience))
        crowd.run()
        yield crowd


@pytest.mark.parametrize("impatience", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_stranded_without_any_polling(kind: str, impatience: float) -> None:
    for seed, crowd in enumerate(crowds(kind, impatience)):
        assert crowd.done == CLIENTS, f"seed {seed}: {sorted(crowd.parked)} sleep for ever"


@pytest.mark.parametrize(
    ("permits", "place", "capacity", "matters"),
    [
        ([1, 1, 1], 2, 1, False),  # a mutex: whoever is ahead must leave
        ([1, 1, 1], 2, 2, False),  # the first waiter of a semaphore watches every holder
        ([1, 1, 1, 1], 3, 2, True),  # the second becomes the first when that one is let in
        ([EVERYTHING, 1, 1], 2, EVERYTHING, False),  # readers behind a writer
    ],
)
def test_being_let_in_matters_to_those_behind_the_first_waiter(
    permits: list[int], place: int, capacity: int, matters: bool
) -> None:
    assert let_in_matters(permits, place, capacity) is matters


def test_where_being_let_in_leaves_no_mark_a_waiter_sleeps_beside_free_room() -> None:
    """Two hold, two wait. One leaves: the first waiter is in, and stays. The other leaves: nobody tells the second."""
    waits = [1, 1, 1, 1]
    assert to_watch(waits, 3, 2) == range(
        2, 3
    )  # the second watches the first, for leaving and for being let in
    waits.pop(0)
    assert to_watch(waits, 2, 2) == range(
        2
    )  # had it looked again, it would watch the holder that leaves next
    assert admitted(waits[1:], 2) == 2  # and there is room for it


def test_a_claim_costs_one_wake_up_or_so() -> None:
    woken = [crowd.wakes for crowd in crowds("lock", 0.0)]
    assert sum(woken) / len(woken) / CLIENTS <= 1.0
