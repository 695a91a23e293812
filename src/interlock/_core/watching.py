"""Seeing a queue change: for elections, operators and the command line."""

from __future__ import annotations

from interlock._core import timing
from interlock._core.client import Client
from interlock._core.names import checked_words, printable_name
from interlock._core.outline import outline
from interlock._core.signature import as_present_holder, as_present_holders
from interlock.errors import InvalidSetting, StoreUnavailable, Unreached
from interlock.model import Queue, Standing
from interlock.store import WAITERS

RECHECK_PERIOD_S = 5.0  # seconds: a missed wake-up costs no more than this
NAMES_PER_PAGE = 500


async def changed(client: Client, resource: str, seen: Queue | None, timeout: float | None) -> Queue | None:
    """The queue once it differs from `seen` (at once for None); None when the time was up."""
    runtime = client.runtime
    until = None if timeout is None else runtime.now() + timeout
    while True:
        client.check_open()
        with client.while_open():
            queue = await client.store.inspect(resource)
        current = as_present_holders(queue)
        if seen is None or outline(current) != outline(seen):
            return current
        left = RECHECK_PERIOD_S if until is None else until - runtime.now()
        if left <= 0:
            return None
        with client.while_open():
            await client.store.watch(resource, queue, min(left, RECHECK_PERIOD_S))


async def watched(client: Client, name: str, seen: Queue | None, timeout: float | None) -> Queue | None:
    client.check_open()
    return await changed(client, printable_name(name), seen, timing.checked_timeout(timeout))


async def inspected(client: Client, name: str, limit: int | None = None) -> Queue:
    client.check_open()
    if limit is not None:
        timing.checked_count(limit, "limit")
    return as_present_holders(await client.store.inspect(printable_name(name), limit=limit))


async def page(client: Client, prefix: str, after: str) -> list[str]:
    """The next names after `after`; an empty list at the end."""
    client.check_open()
    return await client.store.scan(checked_words(prefix, "a prefix"), after, NAMES_PER_PAGE)


def without_internal_queues(names: list[str]) -> list[str]:
    """Without the places where the waiters of conditions stand: those are ours, not the user's."""
    return [name for name in names if not name.endswith(WAITERS)]


async def evicted(
    client: Client, name: str, id: str | None, reason: str, foreign: bool, no_expiry: bool
) -> list[Standing]:
    client.check_open()
    if not checked_words(reason, "a reason").strip():
        raise InvalidSetting("an eviction needs a reason: its victim is told, and so is the next operator")
    try:
        removed = await client.store.evict(
            printable_name(name), id, reason, foreign=foreign, no_expiry=no_expiry
        )
    except Unreached:
        raise
    except StoreUnavailable as error:
        # Never sent again from here: somebody else may hold it by now.
        raise StoreUnavailable(
            f"{error}; the eviction may have been applied: look who holds {name} before you repeat it"
        ) from None
    return [as_present_holder(standing) for standing in removed]
