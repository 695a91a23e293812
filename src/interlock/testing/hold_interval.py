"""The intervals in which leases were held and processes were paused, read from a history for the judges.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from interlock.testing.history import Record

NEVER = float("inf")


@dataclass(slots=True)
class HoldInterval:
    """One lease, as its holder believed in it."""

    process: str
    attempt: str
    resource: str
    token: int
    began: float  # when it was asked for
    granted: float  # when its holder learned of it
    deadline: float
    capacity: int
    permits: list[tuple[float, int]]  # since when it takes how much
    ended: float = NEVER  # when its holder let go or was told of the loss
    lost: bool = False
    killed: float = NEVER  # when its process was
    revived: float = 0.0  # when it was renewed although its deadline had passed; 0.0: never

    @property
    def believed_until(self) -> float:
        """The end of the time in which its holder may act on it."""
        return min(self.deadline, self.ended, self.killed)

    def spans(self) -> list[tuple[float, float, int]]:
        """(from, to, permits), in order."""
        ends = [*(since for since, _ in self.permits[1:]), NEVER]
        cut = [
            (since, min(end, self.believed_until), permits)
            for (since, permits), end in zip(self.permits, ends, strict=True)
        ]
        return [span for span in cut if span[0] < span[1]]

    def __str__(self) -> str:
        return f"{self.attempt} (token {self.token}, {self.granted:.6f} to {self.believed_until:.6f})"


@dataclass(slots=True)
class Life:
    """When one process was paused and when it was killed."""

    killed: float = NEVER
    pauses: list[list[float]] = field(default_factory=list[list[float]])  # [from, to], in order

    def paused(self, start: float, end: float) -> float:
        """Seconds of `start` to `end` in which it did not run."""
        first = bisect_right(self.pauses, [start, NEVER])
        near = self.pauses[max(0, first - 1) :]
        return sum(max(0.0, min(end, to) - max(start, since)) for since, to in near if since < end)


def lives(records: Iterable[Record]) -> dict[str, Life]:
    """The processes that faults happened to. Records are in the order of time."""
    found: dict[str, Life] = {}
    for record in records:
        if record.call != "fault":
            continue
        life = found.setdefault(record.process, Life())
        if record.error == "kill":
            life.killed = min(life.killed, record.time)
        elif record.error == "pause":
            life.pauses.append([record.time, NEVER])
        elif record.error == "resume" and life.pauses:
            life.pauses[-1][1] = min(life.pauses[-1][1], record.time)
    return found


def hold_intervals(records: Iterable[Record]) -> list[HoldInterval]:
    """Every lease that was granted. Records are in the order of time.

    Those of one client may have a claim in turn, each with a token of its own; said twice, the last word
    counts.
    """
    records = list(records)
    found: dict[tuple[str, str, int], HoldInterval] = {}
    latest: dict[tuple[str, str], HoldInterval] = {}
    for record in records:
        key = record.process, record.attempt
        if record.call == "grant":
            latest[key] = found[*key, record.token] = _granted(record)
        elif key in latest:
            _note(latest[key], record)
    ends = lives(records)
    for interval in found.values():
        if interval.process in ends:
            interval.killed = ends[interval.process].killed
    return list(found.values())


def _granted(record: Record) -> HoldInterval:
    return HoldInterval(
        process=record.process,
        attempt=record.attempt,
        resource=record.resource,
        token=record.token,
        began=record.began,
        granted=record.time,
        deadline=record.deadline,
        capacity=record.capacity,
        permits=[(record.time, record.permits)],
    )


def _note(interval: HoldInterval, record: Record) -> None:
    if record.call == "renew":
        if record.time > interval.deadline:
            interval.revived = record.time
        interval.deadline = max(interval.deadline, record.deadline)
    elif record.call == "shrink":
        interval.permits.append((record.time, record.permits))
    elif record.call == "end":
        interval.ended = min(interval.ended, record.time)
        interval.lost = record.kind == "info"
