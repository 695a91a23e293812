"""Whether what the demo claims is true, judged from the ledger's own log and the workers' reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from interlock.lab.demo.ledger import Write
from interlock.lab.demo.report import CAPACITY, LEDGER, PRINTERS, Report


@dataclass(frozen=True, slots=True)
class Crash:
    """A holder that was killed."""

    worker: str
    token: int
    at: float


@dataclass(frozen=True, slots=True)
class Nap:
    """A holder that was paused, and resumed."""

    worker: str
    token: int
    paused: float
    resumed: float


@dataclass(slots=True)
class Evidence:
    """All that is known about a run."""

    ttl: float
    workers: int
    reports: Sequence[Report] = ()
    writes: Sequence[Write] = ()
    crash: Crash | None = None
    nap: Nap | None = None
    left_behind: Sequence[str] = ()
    trouble: Sequence[str] = ()  # what should have happened and did not

    def leases(self, resource: str) -> list[tuple[float, float, int]]:
        """From when to when each lease was valid, and its token, in order of entry.

        A lease ends when its holder leaves, at the latest at its own deadline, or when its holder is killed.
        One that had lapsed before its holder came to run, on a machine that busy, was never valid for it.
        """
        ends = {
            report.token: min(report.at, report.deadline)
            for report in self.reports
            if report.kind == "left" and report.resource == resource
        }
        if self.crash is not None:
            ends.setdefault(self.crash.token, self.crash.at)
        entered = [
            r for r in self.reports if r.kind == "entered" and r.resource == resource and r.at < r.deadline
        ]
        return sorted((r.at, ends.get(r.token, float("inf")), r.token) for r in entered)


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, whether it holds, and the sentences that say so."""

    holds: bool
    text: str


def judged(evidence: Evidence) -> list[Finding]:
    """Every claim the demo makes."""
    return [
        *(Finding(False, text) for text in evidence.trouble),
        one_at_a_time(evidence),
        enough_printers(evidence),
        tokens_rose(evidence),
        no_update_was_lost(evidence),
        *([] if evidence.crash is None else [the_queue_went_on(evidence, evidence.crash)]),
        *([] if evidence.nap is None else [the_late_write_was_refused(evidence, evidence.nap)]),
        nothing_was_left(evidence),
    ]


def overlaps(leases: Iterable[tuple[float, float, int]], capacity: int) -> tuple[int, int]:
    """How many leases began while `capacity` others were valid, and the most that ever were at once."""
    valid: list[float] = []
    too_many = most = 0
    for start, end, _ in sorted(leases):
        valid = [other for other in valid if other > start]
        too_many += len(valid) >= capacity
        valid.append(end)
        most = max(most, len(valid))
    return too_many, most


def one_at_a_time(evidence: Evidence) -> Finding:
    leases = evidence.leases(LEDGER)
    count, _ = overlaps(leases, 1)
    text = f"One at a time: {evidence.workers} processes took the lock {len(leases)} times; {count} overlaps."
    return Finding(bool(leases) and count == 0, text)


def enough_printers(evidence: Evidence) -> Finding:
    leases = evidence.leases(PRINTERS)
    count, most = overlaps(leases, CAPACITY)
    text = f"The semaphore let in {len(leases)}, never more than {most} at once (capacity {CAPACITY})."
    return Finding(bool(leases) and count == 0, text)


def tokens_rose(evidence: Evidence) -> Finding:
    granted = [token for _, _, token in evidence.leases(LEDGER)]
    accepted = [write.token for write in evidence.writes if write.accepted]
    rising = all(a < b for a, b in pairwise(granted))
    kept = all(a <= b for a, b in pairwise(accepted))
    first, last = (granted[0], granted[-1]) if granted else (0, 0)
    text = f"Tokens only rose, from {first} to {last}, with every grant."
    return Finding(rising and kept and bool(accepted), text)


def no_update_was_lost(evidence: Evidence) -> Finding:
    accepted = [write for write in evidence.writes if write.accepted]
    balance = evidence.writes[-1].balance if evidence.writes else 0
    text = f"No update was lost: {len(accepted)} writes of +1 were accepted, and the balance is {balance}."
    return Finding(bool(accepted) and len(accepted) == balance, text)


def the_queue_went_on(evidence: Evidence, crash: Crash) -> Finding:
    grants = [(start, token) for start, _, token in evidence.leases(LEDGER) if start > crash.at]
    if not grants:
        return Finding(False, f"After {crash.worker} was killed nobody got the lock any more.")
    waited = grants[0][0] - crash.at
    text = (
        f"{crash.worker} was killed (kill -9) while it held the lock. Its lease ended by itself, and the "
        f"queue went on after {waited:.1f} s (ttl {evidence.ttl:g} s). Nobody had to clean up."
    )
    return Finding(waited <= evidence.ttl + 1.0 and grants[0][1] > crash.token, text)


def the_late_write_was_refused(evidence: Evidence, nap: Nap) -> Finding:
    mine = [write for write in evidence.writes if write.token == nap.token]
    if len(mine) != 1 or mine[0].accepted:
        return Finding(False, f"{nap.worker} was paused past its ttl and its late write was not refused.")
    late = mine[0]
    undone = late.balance - late.was
    meanwhile = [write for write in evidence.writes if write.seq < late.seq and write.token > nap.token]
    winner = meanwhile[0].worker if meanwhile else "nobody"
    text = (
        f"{nap.worker} was paused for {nap.resumed - nap.paused:.1f} s while it held the lock. Its lease "
        f"lapsed and {winner} went on. Resumed, {nap.worker} knew of nothing and tried to write "
        f"{late.becomes} over a balance of {late.balance}, with its old token. The ledger had accepted a "
        f"higher one: StaleToken, refused. Without that check the write would have undone {undone} "
        f"update{'s' * (undone != 1)}."
    )
    return Finding(bool(meanwhile) and late.highest > nap.token, text)


def nothing_was_left(evidence: Evidence) -> Finding:
    left = "; ".join(evidence.left_behind)
    text = f"Left behind: {left}." if left else "Nothing was left behind: no process, no claim in the store."
    return Finding(not left, text)
