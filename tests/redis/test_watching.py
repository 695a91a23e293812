"""A watch by looking again ends when its time is up, whatever its last look meets."""

from __future__ import annotations

import pytest

from interlock.backends.redis.pubsub.watching import until_changed
from interlock.backends.redis.transport.handshake import stepped
from interlock.errors import StoreUnavailable
from interlock.model import Queue
from interlock.ports import Signal


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def signal(self) -> Signal:
        raise AssertionError("nobody gets as far as to wait")

    async def wait(self, signal: object, timeout: float | None) -> bool:
        raise AssertionError("nobody gets as far as to wait")


@pytest.mark.parametrize(("takes", "told"), [(1.0, False), (0.5, True)])
def test_a_look_that_our_own_time_cut_short_is_no_fault_of_the_store(takes: float, told: bool) -> None:
    clock = Clock()

    async def inspect(resource: str, timeout: float) -> Queue:
        clock.time += takes
        raise StoreUnavailable("no answer")

    watch = until_changed(clock, inspect, Queue("x", 1, ()), 1.0)
    if told:
        with pytest.raises(StoreUnavailable):
            stepped(watch)
    else:
        stepped(watch)
