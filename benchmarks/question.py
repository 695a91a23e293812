"""What is asked, and of whom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median


class Figure(float):
    """What a batch cost, with what else was seen while it ran: `facts`, by their names."""

    facts: dict[str, float]

    def __new__(cls, value: float, **facts: float) -> Figure:
        made = super().__new__(cls, value)
        made.facts = {name.replace("_", " "): fact for name, fact in facts.items()}
        return made


Measure = Callable[[], float]
"""Runs a batch once and returns what it cost: seconds for one operation, unless the question says otherwise."""


@dataclass(frozen=True)
class Case:
    """One contender. `open` prepares it and gives the measure; leaving the context clears up."""

    name: str
    open: Callable[[], AbstractContextManager[Measure]]


def when(module: str, case: Case) -> list[Case]:
    """The case of a peer, if the peer is installed."""
    return [case] if find_spec(module) is not None else []


@dataclass(frozen=True)
class Question:
    """`cases[0]` is the limit. `goal` is what the ratio, or with `absolute` the value, should not exceed."""

    name: str
    title: str
    cases: list[Case]
    goal: float | None = None
    absolute: bool = False
    unit: str = "µs"
    scale: float = 1e6  # from what a measure returns to `unit`
    rounds: int = 15
    judged: str = "interlock"  # whose figure the goal speaks of
    cores: tuple[int, ...] = (1, 2)  # pinned to so many cores, one run each
    note: str = ""


@dataclass
class Result:
    question: Question
    cores: int
    values: dict[str, list[float]] = field(
        default_factory=dict[str, list[float]]
    )  # case name: a value each round

    def facts(self, case: str) -> dict[str, float]:
        """The median over rounds of each fact that was seen beside a case's values."""
        seen = [value.facts for value in self.values[case] if isinstance(value, Figure)]
        return {name: median(facts[name] for facts in seen) for name in (seen[0] if seen else ())}
