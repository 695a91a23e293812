"""What a storm's history comes to: what must never be and was, and the numbers. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interlock.lab.storm.resources import resource_of
from interlock.testing.checkers import Terms, Violation, judge, overlaps, unexcused
from interlock.testing.history import Record
from interlock.testing.hold_interval import hold_intervals, lives
from interlock.testing.linearizability import TooManyStates, operations_by_register, unexplained

Span = tuple[float, float]
MAY_OVERLAP = ("f", "L")
# A quorum that lacks a majority by these may end a lease, and keeps others out.
WIPES = ("node restarted empty", "node flushed")
CLOCKS = ("clock forward", "clock back")  # of which registers, which do not lapse, know nothing


@dataclass(frozen=True, slots=True)
class StormTerms:
    """What a storm is judged by; kept with its history, so that it can be judged again."""

    ttl: float
    progress: float
    """Seconds within which all get on after a fault."""
    tolerance: float
    """Seconds by which a call may overrun its timeout."""
    resources: Sequence[str]

    def pack(self) -> dict[str, Any]:
        return {**asdict(self), "resources": list(self.resources)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`violations` is empty when nothing happened that must never happen."""

    violations: list[Violation]
    numbers: dict[str, float]

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:g}" for name, value in self.numbers.items())
        worst = [str(violation) for violation in self.violations[:20]]
        return "\n".join(
            [told, *worst, "GUILTY" if self.violations else "acquitted: nothing that must never be"]
        )

    @property
    def rules(self) -> set[str]:
        return {violation.rule for violation in self.violations}


def verdict(records: Sequence[Record], terms: StormTerms) -> Verdict:
    """Judge what all processes wrote, in the order of time."""
    excused = spans(records, MAY_OVERLAP, terms.ttl)
    judged = Terms(
        tolerance=terms.tolerance, excused=excused, moment=0.01, heartbeat=1.0, progress=terms.progress
    )
    found = [
        *judge(records, judged),
        *unexcused(removed(records), [*excused, *spans(records, WIPES, terms.ttl)]),
        *standstill(records, terms.resources, terms.progress),
        *not_linear(records, spans(records, MAY_OVERLAP, terms.ttl, but=CLOCKS)),
    ]
    found.sort(key=lambda violation: violation.time)
    return Verdict(found, numbers(records, excused, terms.resources))


def spans(
    records: Iterable[Record], what: tuple[str, ...], ttl: float, but: tuple[str, ...] = ()
) -> list[Span]:
    """When a fault with one of these promises or names was about, and as long as a lease of before may be
    believed.
    """
    begun: dict[str, float] = {}
    found: list[Span] = []
    for record in records:
        words = set(record.error.split(": "))
        if record.call == "fault" and record.attempt and words & set(what) and not words & set(but):
            if record.kind == "invoke":
                begun[record.attempt] = record.time
            else:
                found.append((begun.pop(record.attempt), record.time + ttl))
    return [*found, *((since, float("inf")) for since in begun.values())]


def removed(records: Iterable[Record]) -> list[Violation]:
    """N4: a lease that the store no longer knew before its time was up, though nobody wiped the store."""
    return [
        Violation("N4", record.time, f"{record.resource} {record.attempt}: the store no longer knew it")
        for record in records
        if record.call == "end" and record.error == "refused" and record.time < record.deadline
    ]


def not_linear(records: Sequence[Record], forgotten: Sequence[Span]) -> list[Violation]:
    """R: a register whose answers no order of its calls explains, unless its store may have lost them."""
    found: list[Violation] = []
    for key, operations in operations_by_register(records).items():
        begun = [one.began for one in operations]
        if any(start <= max(begun) and end >= min(begun) for start, end in forgotten):
            continue
        try:
            culprit = unexplained(operations)
        except TooManyStates:
            continue  # nobody can say; `numbers` counts it
        if culprit is not None:
            found.append(Violation("R", culprit.began, f"{key}: {culprit}, which no order explains"))
    return found


def pauses_after_faults(
    records: Sequence[Record], resources: Sequence[str]
) -> list[tuple[Record, str, float]]:
    """How long each resource waited for a grant once a fault had healed; infinite if there was none."""
    grants: dict[str, list[float]] = {name: [] for name in resources}
    for record in records:
        resource = resource_of(record.resource) if record.call == "put" else record.resource
        if (record.call, record.kind) in (("grant", "ok"), ("put", "ok")) and resource in grants:
            grants[resource].append(record.time)
    found: list[tuple[Record, str, float]] = []
    for record in records:
        # A change of master is dated by a guess, which may lie beyond the end: the fault that made it counts.
        if record.call == "fault" and record.kind == "ok" and record.attempt.startswith("fault"):
            for name, times in grants.items():
                at = bisect_right(times, record.time)
                found.append((record, name, times[at] - record.time if at < len(times) else float("inf")))
    return found


def standstill(records: Sequence[Record], resources: Sequence[str], progress: float) -> list[Violation]:
    """N7, after each fault: every resource is granted again."""
    return [
        Violation("N7", healed.time, f"{name}: not granted for {pause:.2f} s after {healed.error} had healed")
        for healed, name, pause in pauses_after_faults(records, resources)
        if pause > progress
    ]


def numbers(records: Sequence[Record], excused: list[Span], resources: Sequence[str]) -> dict[str, float]:
    calls = Counter((record.call, record.kind) for record in records)
    ends = Counter(record.error for record in records if record.call == "end" and record.kind == "info")
    waits = sorted(pause for _, _, pause in pauses_after_faults(records, resources))
    leases = hold_intervals(records)
    every = overlaps(leases)
    stalls = sum(
        to - since for life in lives(records).values() for since, to in life.pauses if to < float("inf")
    )
    return {
        "grants": calls["grant", "ok"],
        "register writes": calls["put", "ok"],
        "renewals": calls["renew", "ok"],
        "faults": sum(r.kind == "ok" and r.attempt.startswith("fault") for r in records),
        "accepted": calls["accept", "ok"],
        "refused writes": calls["accept", "fail"],
        "lost (lapsed)": ends["lapsed"],
        "lost (refused)": ends["refused"],
        "given too late": sum(lease.granted > lease.deadline for lease in leases),
        "no answer": calls["acquire", "info"] + calls["release", "info"],
        "overlaps (excused)": len(every) - len(unexcused(every, excused)),
        "median pause": round(waits[len(waits) // 2], 3) if waits else 0.0,
        "longest pause": round(waits[-1], 2) if waits else 0.0,
        "seconds": round(records[-1].time - records[0].time, 1) if records else 0.0,
        "stalled process-seconds": round(stalls, 1),
    }
