"""The judges: what must never happen, read from a history. Pure, O(n log n), no clients, no stores.

    N1 a guarded resource accepts a token lower than one it accepted
    N2 two grants with one token
    N3 a grant that began after another completed has a lower token
    N4 a release or renewal touches another's lease
    N5 a lease says that it is valid after its own deadline
    N6 a call overruns its timeout by more than the tolerance
    N7 no progress after the last fault healed
    N8 a loss is not reported within one heartbeat after the holder runs again
    N9 a lost update on a guarded counter
    N10 something is left behind
    E  two valid leases overlap in true time beyond the capacity
    S  a promise of one synchronizer is broken

A history is judged whole: `judge(records, Terms(...))`. Where a store cannot promise E (its memory was wiped,
its clock jumped), `Terms(exclusive=False)` leaves that rule out; what remains is carried by the tokens. Where
it could not for a while, `Terms(excused=[(from, to), ...])` leaves it out for leases that began to overlap
then.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interlock.testing.history import Record
from interlock.testing.hold_interval import NEVER, HoldInterval, hold_intervals, lives


@dataclass(frozen=True, slots=True)
class Terms:
    """The promises that a run is judged by."""

    exclusive: bool = True
    excused: Sequence[tuple[float, float]] = ()  # spans of time in which it was not
    tolerance: float = 0.25  # seconds by which a call may overrun its timeout
    heartbeat: float = 1.0  # seconds within which a loss is reported
    progress: float = 30.0  # seconds within which a call gets through once all faults have healed
    moment: float = 0.001  # seconds that pass between reading a clock and writing a record


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must never happen, and did."""

    rule: str
    time: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.time:.6f}: {self.text}"


def judge(records: Iterable[Record], terms: Terms = Terms()) -> list[Violation]:  # noqa: B008  (frozen)
    """Everything that must never happen and did, in the order of time."""
    ordered = sorted(records, key=lambda record: record.time)
    leases = hold_intervals(ordered)
    found = [
        *(unexcused(overlaps(leases), terms.excused) if terms.exclusive else []),
        *repeated_tokens(leases),
        *falling_tokens(leases),
        *guarded(ordered),
        *stated(ordered),
        *undead(ordered, leases, terms),
        *overruns(ordered, terms),
        *stuck(ordered, terms),
        *unreported(ordered, leases, terms),
    ]
    return sorted(found, key=lambda violation: violation.time)


def by_resource(leases: Iterable[HoldInterval]) -> dict[str, list[HoldInterval]]:
    found: dict[str, list[HoldInterval]] = defaultdict(list)
    for lease in leases:
        found[lease.resource].append(lease)
    return found


def overlaps(leases: Iterable[HoldInterval]) -> list[Violation]:
    """E: at every instant, what all holders believe to hold fits into the capacity."""
    found: list[Violation] = []
    for resource, held in by_resource(leases).items():
        spans = [(*span, lease) for lease in held for span in lease.spans()]
        spans.sort(key=lambda span: span[:2])
        inside: list[tuple[float, int, int, HoldInterval]] = []
        taken = 0
        for order, (start, end, permits, lease) in enumerate(spans):
            while inside and inside[0][0] <= start:
                taken -= heapq.heappop(inside)[2]
            heapq.heappush(inside, (end, order, permits, lease))
            taken += permits
            if taken > lease.capacity:
                both = "; ".join(str(one) for _, _, _, one in sorted(inside, key=lambda one: one[1]))
                found.append(
                    Violation("E", start, f"{resource}: {taken} of {lease.capacity} believed held: {both}")
                )
    return found


def unexcused(found: Iterable[Violation], spans: Iterable[tuple[float, float]]) -> list[Violation]:
    """Without those that happened within a span. Spans may overlap."""
    starts, latest = (
        list[float](),
        list[float](),
    )  # the end of the span that lasts longest of those begun so far
    for start, end in sorted(spans):
        starts.append(start)
        latest.append(max(end, latest[-1] if latest else end))

    def outside(time: float) -> bool:
        begun = bisect_right(starts, time)
        return begun == 0 or latest[begun - 1] < time

    return [violation for violation in found if outside(violation.time)]


def repeated_tokens(leases: Iterable[HoldInterval]) -> list[Violation]:
    """N2: no token is given twice."""
    found: list[Violation] = []
    for resource, held in by_resource(leases).items():
        first: dict[int, HoldInterval] = {}
        for lease in held:
            other = first.setdefault(lease.token, lease)
            if other is not lease:
                found.append(
                    Violation("N2", lease.granted, f"{resource}: {other} and {lease} have one token")
                )
    return found


def falling_tokens(leases: Iterable[HoldInterval]) -> list[Violation]:
    """N3: who began after another had its grant has the higher token."""
    found: list[Violation] = []
    for resource, held in by_resource(leases).items():
        completed = sorted(held, key=lambda lease: lease.granted)
        highest: HoldInterval | None = None
        done = 0
        for lease in sorted(held, key=lambda lease: lease.began):
            while done < len(completed) and completed[done].granted < lease.began:
                if highest is None or completed[done].token > highest.token:
                    highest = completed[done]
                done += 1
            if highest is not None and lease.token < highest.token:
                text = f"{resource}: {lease} began at {lease.began:.6f}, after {highest} was granted"
                found.append(Violation("N3", lease.granted, text))
    return found


def guarded(records: Sequence[Record]) -> list[Violation]:
    """N1 and N9, from the guarded resource's own log: tokens never fall, each value follows the last."""
    found: list[Violation] = []
    token: dict[str, int] = {}
    value: dict[str, int] = {}
    for record in records:
        if record.call != "accept" or record.kind != "ok":
            continue
        name = record.resource
        if record.token < token.get(name, 0):
            found.append(Violation("N1", record.time, f"{name}: {record.token} accepted after {token[name]}"))
        if record.value != value.get(name, 0) + 1:
            text = (
                f"{name}: {record.attempt} wrote {record.value} over {value.get(name, 0)}: an update is lost"
            )
            found.append(Violation("N9", record.time, text))
        token[name], value[name] = max(record.token, token.get(name, 0)), record.value
    return found


STATED = {"touch": "N4", "left": "N10", "broken": "S"}


def stated(records: Sequence[Record]) -> list[Violation]:
    """N4, N10 and S: what a witness saw and wrote down."""
    return [
        Violation(STATED[record.call], record.time, f"{record.resource} {record.attempt}: {record.error}")
        for record in records
        if record.call in STATED
    ]


def undead(records: Sequence[Record], leases: Iterable[HoldInterval], terms: Terms) -> list[Violation]:
    """N5: past its deadline a lease says no, is not renewed, and is not simply released."""
    found: list[Violation] = []
    known = lives(records)
    for record in records:
        if record.call == "check" and record.kind == "ok" and record.time > record.deadline + terms.moment:
            found.append(
                Violation("N5", record.time, f"{record.attempt} said yes, its deadline {record.deadline:.6f}")
            )
    for lease in leases:
        if lease.revived:
            found.append(Violation("N5", lease.revived, f"{lease} was renewed after its deadline"))
        if lease.lost or lease.ended == NEVER:
            continue
        life = known.get(lease.process)  # stopped between the look at the clock and the record: no lie
        late = lease.ended - lease.deadline - (life.paused(lease.deadline, lease.ended) if life else 0.0)
        if late > terms.moment:
            found.append(Violation("N5", lease.ended, f"{lease} was released as if it had been held"))
    return found


def calls(records: Sequence[Record]) -> list[tuple[Record, float]]:
    """Every call of the program with the time of its outcome; infinity when there is none."""
    ends: dict[tuple[str, str, str], float] = {}
    for record in reversed(records):
        if record.kind != "invoke" and record.call in ("acquire", "release"):
            ends[record.process, record.call, record.attempt] = record.time
    return [
        (record, ends.get((record.process, record.call, record.attempt), NEVER))
        for record in records
        if record.kind == "invoke" and record.call in ("acquire", "release")
    ]


def overruns(records: Sequence[Record], terms: Terms) -> list[Violation]:
    """N6: a call returns in time, not counting the time its process did not run."""
    found: list[Violation] = []
    known = lives(records)
    for begun, end in calls(records):
        if begun.limit is None or end == NEVER:
            continue
        life = known.get(begun.process)
        took = end - begun.time - (life.paused(begun.time, end) if life else 0.0)
        if took > begun.limit + terms.tolerance:
            text = f"{begun.process} {begun.attempt}: {begun.call} took {took:.3f} s of {begun.limit:.3f} s"
            found.append(Violation("N6", end, text))
    return found


def stuck(records: Sequence[Record], terms: Terms) -> list[Violation]:
    """N7: once all has healed every call gets through; in a history without a heal, by its end."""
    found: list[Violation] = []
    healed = max((record.time for record in records if record.call == "heal"), default=0.0)
    last = records[-1].time if records else 0.0
    known = lives(records)
    for begun, end in calls(records):
        life = known.get(begun.process)
        if life is not None and life.killed < NEVER:
            continue
        late = min(end, last) - max(begun.time, healed)
        if end == NEVER or late > terms.progress:
            text = f"{begun.process} {begun.attempt}: {begun.call} of {begun.resource} waits for {late:.3f} s"
            found.append(Violation("N7", min(end, last), text))
    return found


def unreported(records: Sequence[Record], leases: Iterable[HoldInterval], terms: Terms) -> list[Violation]:
    """N8: whoever outlives its lease is told, within a heartbeat of running again."""
    found: list[Violation] = []
    known = lives(records)
    last = records[-1].time if records else 0.0
    for lease in leases:
        known_at, over = (
            min(lease.ended, last),
            max(lease.deadline, lease.granted),
        )  # a late reply may be given over
        if lease.killed < NEVER or known_at <= over:
            continue
        life = known.get(lease.process)
        late = known_at - over - (life.paused(over, known_at) if life else 0.0)
        if late > terms.heartbeat:
            found.append(Violation("N8", known_at, f"{lease}: nobody was told of its end for {late:.3f} s"))
    return found
