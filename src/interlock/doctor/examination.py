"""Looks at a deployment through one client, within one deadline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from interlock._support.wording import duration
from interlock.doctor.diagnosis import Diagnosis, Health, Probe, ordered
from interlock.doctor.probe import probed
from interlock.errors import InterlockError
from interlock.model import Finding, Traits

if TYPE_CHECKING:
    from interlock._core.client import Client

RESERVED = "interlock/doctor"
"""The name that is asked for, and that a probe locks: no program should use it."""

RENEWALS_IN_TTL = 3  # a lease is renewed at a third of its ttl, so the slowest renewal must fit in that often


async def checked_health(core: Client, timeout: float) -> Health:
    """Ask the store one question; never raises for a store that does not answer."""
    core.check_open()
    began = core.runtime.now()
    try:
        await core.store.inspect(RESERVED, timeout, limit=1)
    except InterlockError as error:
        return Health(False, core.runtime.now() - began, str(error))
    return Health(True, core.runtime.now() - began)


async def diagnosed(core: Client, name: str, timeout: float, *, probe: bool) -> Diagnosis:
    """Examine the servers, and with `probe` lock, renew, hand over and release one reserved name."""
    until = core.runtime.now() + timeout
    core.check_open()
    found = await core.store.examine(timeout)
    if found.unreachable:
        return Diagnosis(name, ordered(found.findings), unreachable=found.unreachable)
    findings = [*found.findings, *scope(core.store.traits)]
    measured: Probe | None = None
    if probe:
        try:
            measured = await probed(core, RESERVED, max(0.001, until - core.runtime.now()))
        except InterlockError as error:
            findings.append(
                Finding("probe", "danger", f"a lock could not be taken, renewed and released: {error}")
            )
        else:
            findings += [*ttl_budget(measured, core.ttl), *wakeups(measured, core.store.traits)]
    return Diagnosis(name, ordered(findings), found.outlooks, measured)


def scope(traits: Traits) -> Iterator[Finding]:
    """scope: a store that reaches less far than the programs that must exclude each other."""
    ask = 'connect(requires="network"), or INTERLOCK_REQUIRES=network, refuses such a store'
    if traits.reach == "process":
        yield Finding("scope", "warning", "these locks exclude the threads of one process only", ask)
    elif traits.reach == "machine":
        yield Finding("scope", "note", "these locks exclude the processes of one machine only", ask)
    else:
        yield Finding("scope", "good", "these locks exclude all programs that reach the servers")


def ttl_budget(measured: Probe, ttl: float) -> Iterator[Finding]:
    """ttl-budget: renewals that take too long lose leases."""
    slow = measured.renewal_p99
    if RENEWALS_IN_TTL * slow > ttl:
        yield Finding(
            "ttl-budget",
            "warning",
            f"the slowest renewal took {duration(slow)}, and a ttl of {duration(ttl)} leaves it "
            f"{duration(ttl / RENEWALS_IN_TTL)}: one hiccup, and leases are lost",
            f"a ttl of at least {duration(10 * slow)}",
        )
    else:
        yield Finding(
            "ttl-budget",
            "good",
            f"the slowest renewal took {duration(slow)}, and a ttl of {duration(ttl)} leaves it "
            f"{duration(ttl / RENEWALS_IN_TTL)}",
        )


def wakeups(measured: Probe, traits: Traits) -> Iterator[Finding]:
    """wake-ups: without messages, the next waiter comes in only when it looks again."""
    if traits.wakes == "poll":
        return
    if measured.handover is None:
        yield Finding("wake-ups", "danger", "a waiter was not let in after a release")
    elif measured.woken:
        yield Finding(
            "wake-ups", "good", f"a waiter had the lock {duration(measured.handover)} after its release"
        )
    else:
        yield Finding(
            "wake-ups",
            "warning",
            "no message woke the waiter, so it had to look again by itself: each hand-over may take seconds",
            "see what stands between client and server: a pooler, a proxy, rights on channels",
        )
