"""Takes one lock under a reserved name, renews it, hands it over and releases it, and measures each."""

from __future__ import annotations

from statistics import quantiles
from typing import TYPE_CHECKING

from interlock.doctor.diagnosis import Probe
from interlock.errors import AcquireTimeout, StoreUnavailable
from interlock.model import Busy, Claim, Granted, Renewal, Renewed

if TYPE_CHECKING:
    from interlock._core.client import Client

RENEWALS = 50
WAITS_S = 0.05  # seconds after which the holder releases: by then the waiter listens
WOKEN_S = 1.0  # a waiter that is not back by then would have polled


async def probed(core: Client, name: str, timeout: float) -> Probe:
    """Measure; whatever happens, both claims are taken back."""
    runtime, store, until = core.runtime, core.store, core.runtime.now() + timeout
    ttl = core.ttl
    first = Claim(name, runtime.fresh_id(), ttl, who=runtime.who(runtime.owner()))
    second = Claim(name, runtime.fresh_id(), ttl, who=first.who)
    try:
        began = runtime.now()
        answer = await store.claim(first, timeout)
        acquire = runtime.now() - began
        if not isinstance(answer, Granted):
            ahead, holder = (answer.ahead, answer.holder) if isinstance(answer, Busy) else (0, None)
            raise AcquireTimeout(name, acquire, ahead, () if holder is None else [holder])
        times: list[float] = []
        for _ in range(RENEWALS):
            asked = runtime.now()
            (renewed,) = await store.renew([Renewal(name, first.id, ttl)], max(0.001, until - asked))
            if not isinstance(renewed, Renewed):
                raise StoreUnavailable(f"{name}: a renewal was answered {renewed!r}")
            times.append(runtime.now() - asked)
        handover, woken = await _handed_over(core, first, second, until)
        cuts = quantiles(times, n=100)
        return Probe(acquire, cuts[49], max(times), handover, woken)
    finally:
        await runtime.finish(lambda: _taken_back(core, first, second))


async def _handed_over(core: Client, first: Claim, second: Claim, until: float) -> tuple[float | None, bool]:
    """The seconds from the release of the first to the grant of the second, and whether a message told it."""
    runtime, store = core.runtime, core.store
    if not store.traits.fair:
        await store.release(first.resource, first.id)
        return None, False
    answer = await store.claim(second, max(0.001, until - runtime.now()))
    if not isinstance(answer, Busy):
        return None, False
    released: list[float] = []

    async def release() -> None:
        await runtime.sleep(WAITS_S)
        # The blocking side where the caller is a task elsewhere: a job has a thread or a task of its own.
        released.append(runtime.now())
        await store.release(first.resource, first.id)

    job = runtime.spawn("interlock-doctor", release)
    while runtime.now() < until:
        granted = await store.wait(second, answer, min(5.0, max(0.001, until - runtime.now())))
        if granted is None:
            again = await store.claim(second, max(0.001, until - runtime.now()))
            if isinstance(again, Busy):
                answer = again
                continue
        now = runtime.now()
        await runtime.join(job, 1.0)
        if not released:
            return None, False
        return now - released[0], now - released[0] < WOKEN_S
    await runtime.join(job, 1.0)
    return None, False


async def _taken_back(core: Client, *claims: Claim) -> None:
    for claim in claims:
        try:
            await core.store.release(claim.resource, claim.id)
        except StoreUnavailable:
            continue  # it lapses
