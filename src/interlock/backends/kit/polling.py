"""Watching by polling, for stores whose server tells nobody of changes.

Redis and Redlock watch queues in this way (their scripts publish grants, not changes), and a holder on
Redlock learns in this way that it was removed. A new store gets all its watches from `poll`, if its server
has nothing better.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import WaitRuntime
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Queue

FIRST_PAUSE_S = 0.02  # seconds between the first checks
MAX_PAUSE_S = 0.25  # and between later ones, when nothing has changed for a while
GROWTH = 1.5

Inspect = Callable[[str, float], Awaitable[Queue]]
"""Answers with the queue of a resource within the seconds it is given."""


async def poll(
    runtime: WaitRuntime,
    check: Callable[[float], Awaitable[bool]],
    timeout: float,
    random: Callable[[], float] | None = None,
) -> None:
    """Return when `check`, which is given the seconds that it may take, returns True; or after `timeout`
    seconds.

    An error of the store is raised, unless the time is up as well: a check that was cut short by our own
    timeout is no fault of the store. With `random` the pauses differ, so that many watchers do not ask at the
    same time.
    """
    deadline, pause = Deadline(runtime.now, timeout), FIRST_PAUSE_S
    while not deadline.passed():
        try:
            if await check(deadline.for_request()):
                return
        except StoreUnavailable:
            if deadline.passed():
                return
            raise
        jitter = 1.0 if random is None else 0.5 + random()
        await runtime.wait(runtime.signal(), min(deadline.left(), pause * jitter))
        pause = min(MAX_PAUSE_S, pause * GROWTH)


async def until_changed(runtime: WaitRuntime, inspect: Inspect, seen: Queue, timeout: float) -> None:
    """Return when the queue differs from `seen`, or after `timeout` seconds."""
    before = outline(seen)

    async def changed(within: float) -> bool:
        return outline(await inspect(seen.resource, within)) != before

    await poll(runtime, changed, timeout)


async def until_removed(
    runtime: WaitRuntime, inspect: Inspect, claim: Claim, timeout: float, random: Callable[[], float]
) -> None:
    """Return when the claim holds no more, or after `timeout` seconds."""

    async def removed(within: float) -> bool:
        return claim.id not in [holder.id for holder in (await inspect(claim.resource, within)).holders]

    await poll(runtime, removed, timeout, random)
