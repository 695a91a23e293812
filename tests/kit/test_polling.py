"""Watching by looking again: it ends with the change or with its time, and what it meets in between is told truly."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from interlock._core.drive import drive
from interlock._core.runtime import Signal
from interlock.backends.kit.polling import MAX_PAUSE_S, poll, until_changed, until_removed
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Queue, Standing


class Clock:
    """Time that passes when somebody waits, or as long as a look takes."""

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def signal(self) -> Signal:
        return threading.Event()

    async def wait(self, signal: object, timeout: float | None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.time += timeout
        return False


class Server:
    """Answers with one queue after another; each answer takes its time."""

    def __init__(self, clock: Clock, *answers: Queue | Exception, takes: float = 0.0) -> None:
        self.clock, self.answers, self.takes = clock, list(answers), takes
        self.within: list[float] = []

    async def inspect(self, resource: str, timeout: float) -> Queue:
        self.within.append(timeout)
        self.clock.time += self.takes
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def standing(id: str) -> Standing:
    return Standing(id=id, token=1, permits=1, admitted=True, who="", age=0.0, lapses_in=9.0, note="")


IDLE = Queue("x", 0, ())
HELD = Queue("x", 1, (standing("me"),))
CLAIM = Claim("x", "me", 30.0)


@pytest.mark.parametrize(("takes", "told"), [(1.0, False), (0.5, True)])
def test_a_look_that_our_own_time_cut_short_is_no_fault_of_the_store(takes: float, told: bool) -> None:
    clock = Clock()
    watch = until_changed(clock, Server(clock, StoreUnavailable("no answer"), takes=takes).inspect, IDLE, 1.0)
    if told:
        with pytest.raises(StoreUnavailable):
            drive(watch)
    else:
        drive(watch)


def test_it_returns_with_the_first_look_that_finds_a_change() -> None:
    clock = Clock()
    server = Server(clock, IDLE, IDLE, HELD)
    drive(until_changed(clock, server.inspect, IDLE, 60.0))
    assert len(server.within) == 3


def test_without_a_change_it_returns_when_its_time_is_up_and_never_late() -> None:
    clock = Clock()
    drive(until_changed(clock, Server(clock, IDLE, takes=0.2).inspect, IDLE, 1.0))
    assert clock.time <= 1.2  # the last look may take its time, and no pause follows it
    assert sum(clock.pauses) <= 1.0


def test_looks_grow_rarer_up_to_a_bound() -> None:
    clock = Clock()
    drive(until_changed(clock, Server(clock, IDLE).inspect, IDLE, 10.0))
    assert clock.pauses[:-1] == sorted(clock.pauses[:-1])
    assert max(clock.pauses) == MAX_PAUSE_S


def test_each_look_is_given_what_is_left() -> None:
    clock = Clock()
    server = Server(clock, IDLE)
    drive(until_changed(clock, server.inspect, IDLE, 2.0))
    assert server.within[0] == 2.0
    assert server.within == sorted(server.within, reverse=True)


@pytest.mark.parametrize(("random", "factor"), [(lambda: 0.0, 0.5), (lambda: 0.5, 1.0)])
def test_many_who_watch_do_not_look_at_the_same_time(random: Callable[[], float], factor: float) -> None:
    plain, spread = Clock(), Clock()

    async def look(within: float) -> bool:
        return False

    drive(poll(plain, look, 0.1))
    drive(poll(spread, look, 0.1, random))
    assert spread.pauses[0] == plain.pauses[0] * factor


def test_a_holder_learns_that_it_was_removed() -> None:
    clock = Clock()
    server = Server(clock, HELD, HELD, IDLE)
    drive(until_removed(clock, server.inspect, CLAIM, 60.0, lambda: 0.5))
    assert len(server.within) == 3
