"""Breadth-first search through everything that can happen in a small model, to the end or to the first crime.

A model says where it begins, what may happen next, and what must never be. The search visits every state
once; `complete` means that it has seen them all, within the model's bounds. What it finds wrong it tells as
a shortest trace. States that differ only in the order of their nodes are one state (`Model.same`); a trace
is walked again without that, so that node 1 stays node 1 from its first line to its last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Label = tuple[Any, ...]
"""A sentence with holes, then what fills them: only those of a trace are ever put together."""


class Model(Protocol[State]):
    """What is searched."""

    def first(self) -> State:
        """Where everything begins."""
        ...

    def steps(self, state: State) -> Iterator[tuple[Label, State]]:
        """All that may happen next."""
        ...

    def crime(self, state: State) -> str:
        """What must never be and is; "" when all is well."""
        ...

    def same(self, state: State, *, ordered: bool) -> State:
        """One state for all that differ in nothing that can still matter; `ordered`: keep the order of
        nodes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """What a search came to."""

    crime: str  # "" when there is none
    states: int
    complete: bool  # the whole space was seen
    trace: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        if self.crime:
            return "\n".join([f"{self.crime}, found after {self.states} states:", *self.trace])
        return f"safe, {self.states} states, {'complete' if self.complete else 'stopped before the end'}"


def search(model: Model[State], limit: int = 5_000_000) -> Finding:
    """Look for a crime, stopping after `limit` states; its trace is the shortest there is."""
    first = model.same(model.first(), ordered=False)
    came: dict[State, State | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for _, after in model.steps(state):
            crime = model.crime(after)  # before what can no longer matter is forgotten
            known = model.same(after, ordered=False)
            if known not in came:
                came[known] = state
                waiting.append(known)
            if crime:
                path = [*_path(came, state), known]
                return Finding(crime, len(came), False, _retold(model, path, crime))
        if len(came) > limit:
            return Finding("", len(came), False)
    return Finding("", len(came), True)


def _path(came: dict[State, State | None], state: State) -> list[State]:
    """The states that lead to one, without the first."""
    path: list[State] = []
    while (before := came[state]) is not None:
        path.append(state)
        state = before
    return path[::-1]


def _retold(model: Model[State], path: list[State], crime: str) -> list[str]:
    """Walk along a path with nodes that keep their places; the sentence of each step."""
    told: list[str] = []
    state = model.same(model.first(), ordered=True)
    for place, wanted in enumerate(path, 1):
        for label, after in model.steps(state):
            due = crime if place == len(path) else ""
            if model.same(after, ordered=False) == wanted and model.crime(after) == due:
                told.append(str(label[0]).format(*label[1:]))
                state = model.same(after, ordered=True)
                break
    return told
