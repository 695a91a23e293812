"""Whether a register behaved as one register that is asked by one client after the other. Pure.

Each read and each write must take effect at one instant between its beginning and its end, so that all
answers fit together in the order of these instants. A write whose outcome nobody knows may have taken effect
at any instant after its beginning, or never.

The search goes through the history in the order of time, with all states in which the register may be. A
read or a write has taken effect when it ends, so at each end every order of the calls under way is tried.
That is quick while few calls are under way at once; a history is one register's, so keep registers
short-lived in tests.

    problem = unexplained(operations)      # None: there is an order that explains every answer
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from interlock.testing.history import Record

NEVER = float("inf")
MOST_STATES = 100_000


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on one register. A value of 0 says that nothing is there."""

    name: str
    kind: Literal["get", "put"]
    outcome: Literal["ok", "fail", "info"]
    """`fail` is the answer to a write that another version stood there; `info`: nobody knows."""
    began: float
    ended: float = NEVER
    value: int = 0
    version: int = 0
    """The version that was read, or that the write made."""
    expected: int = 0
    """The version over which the value was to be written."""

    def __str__(self) -> str:
        if self.kind == "get":
            return f"{self.name} read {self.value} at version {self.version}"
        told = {"ok": f"made version {self.version}", "fail": "was refused", "info": "has no answer"}
        return f"{self.name}'s write of {self.value} over version {self.expected} {told[self.outcome]}"


class State(NamedTuple):
    """What the register may hold. After a write without an answer, the version is only known to be later."""

    value: int = 0
    version: int = 0
    exact: bool = True

    def may_have(self, version: int) -> bool:
        return version == self.version if self.exact else version > self.version

    def may_lack(self, version: int) -> bool:
        return version != self.version or not self.exact

    def after(self, operation: Operation) -> State | None:
        """The state after this operation; None if its answer does not fit."""
        if operation.kind == "get":
            fits = operation.value == self.value and self.may_have(operation.version)
            return State(self.value, operation.version) if fits else None
        if operation.outcome == "fail":
            return self if self.may_lack(operation.expected) else None
        if not self.may_have(operation.expected):
            return None
        if operation.outcome == "ok":
            new = State(operation.value, operation.version)
            return new if operation.version > operation.expected else None
        return State(operation.value, operation.expected, exact=False)


class TooManyStates(Exception):
    """The history is too large to be searched: too many calls were under way at once."""


Configuration = tuple[State, frozenset[int]]
"""A state, and which of the calls under way have taken effect."""


def unexplained(operations: Sequence[Operation]) -> Operation | None:
    """The first operation whose answer no order explains; None if all fit together."""
    relevant = [one for one in operations if one.kind == "put" or one.outcome == "ok"]
    events = sorted(
        [(one.began, 0, number) for number, one in enumerate(relevant)]
        + [(one.ended, 1, number) for number, one in enumerate(relevant) if one.outcome != "info"]
    )
    configurations: set[Configuration] = {(State(), frozenset())}
    under_way: list[int] = []
    for _, is_end, number in events:
        if not is_end:
            under_way.append(number)
            continue
        configurations = _ended(number, configurations, under_way, relevant)
        if not configurations:
            return relevant[number]
        under_way.remove(number)
    return None


def _ended(
    number: int, configurations: set[Configuration], under_way: list[int], operations: Sequence[Operation]
) -> set[Configuration]:
    """The configurations in which this call has taken effect, whatever others did so before it."""
    seen = set(configurations)
    waiting = list(configurations)
    found: set[Configuration] = set()
    while waiting:
        state, done = waiting.pop()
        if number in done:
            found.add((state, done - {number}))
            continue
        for other in under_way:
            after = None if other in done else state.after(operations[other])
            if after is None:
                continue
            # A write without an answer needs no mark: versions grow, so it fits no second time.
            marked = done if operations[other].outcome == "info" else done | {other}
            if (after, marked) not in seen:
                seen.add((after, marked))
                waiting.append((after, marked))
        if len(seen) > MOST_STATES:
            raise TooManyStates(f"more than {MOST_STATES} states at the end of {operations[number]}")
    return found


def operations_by_register(records: Iterable[Record]) -> dict[str, list[Operation]]:
    """The reads and writes of registers in a history, by the register. Records are in the order of time."""
    begun: dict[tuple[str, str], Record] = {}
    ends: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.call in ("get", "put"):
            (begun if record.kind == "invoke" else ends)[record.process, record.attempt] = record
    found: dict[str, list[Operation]] = {}
    for key, first in begun.items():
        operation = _operation(first, ends.get(key))
        found.setdefault(first.resource, []).append(operation)
    return found


def _operation(first: Record, end: Record | None) -> Operation:
    unknown = end is None or end.kind == "info"
    return Operation(
        name=first.attempt,
        kind="get" if first.call == "get" else "put",
        outcome="info" if unknown else "fail" if end is not None and end.kind == "fail" else "ok",
        began=first.time,
        ended=NEVER if end is None or unknown else end.time,
        value=end.value if end is not None and first.call == "get" else first.value,
        version=0 if end is None else end.token,
        expected=first.expected,
    )
