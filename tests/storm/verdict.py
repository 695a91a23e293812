"""What a storm's history comes to: the judges' findings, and the numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock.testing.checkers import Terms, Violation, judge, overlaps, unexcused
from interlock.testing.history import Record, read
from interlock.testing.hold_interval import hold_intervals, lives
from interlock.testing.lag import stretched

Span = tuple[float, float]
CONNECT = 0.5  # seconds that a worker gives a server to be connected to, beside the timeout of its call
MAY_OVERLAP = ("f", "L")
WIPES = (
    "empty restart",
    "flushall",
)  # a quorum that lacks a majority by these may end a lease, and keeps others out


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


def verdict(folder: Path, ttl: float, progress: float, resources: Sequence[str]) -> Verdict:
    """Judge what the processes in `folder` wrote. `progress`: seconds within which all get on after a fault."""
    records = read(sorted(folder.glob("*.jsonl")))
    excused = spans(records, MAY_OVERLAP, ttl)
    terms = Terms(
        tolerance=stretched(0.25) + CONNECT, excused=excused, moment=0.01, heartbeat=1.0, progress=progress
    )
    found = [
        *judge(records, terms),
        *unexcused(removed(records), [*excused, *spans(records, WIPES, ttl)]),
        *standstill(records, resources, progress),
    ]
    return Verdict(sorted(found, key=lambda violation: violation.time), numbers(records, excused, resources))


def spans(records: Iterable[Record], what: tuple[str, ...], ttl: float) -> list[Span]:
    """When a fault with one of these promises or names was about, and as long as a lease of before may be believed."""
    begun: dict[str, float] = {}
    found: list[Span] = []
    for record in records:
        if record.call == "fault" and record.attempt and set(record.error.split(": ")) & set(what):
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


def pauses_after_faults(
    records: Sequence[Record], resources: Sequence[str]
) -> list[tuple[Record, str, float]]:
    """How long each resource waited for its next grant once a fault had healed; infinite if there was none."""
    grants: dict[str, list[float]] = {name: [] for name in resources}
    for record in records:
        if record.call == "grant" and record.resource in grants:
            grants[record.resource].append(record.time)
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
