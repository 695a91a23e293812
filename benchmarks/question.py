"""What is asked, and of whom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

Measure = Callable[[], float]
"""Runs a batch once and returns what it cost: seconds for one operation, unless the question says otherwise."""


@dataclass(frozen=True)
class Case:
    """One contender. `open` prepares it and gives the measure; leaving the context clears up."""

    name: str
    open: Callable[[], AbstractContextManager[Measure]]


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
