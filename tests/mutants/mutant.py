"""A deliberate bug: what is changed, who must notice, and whom it would hurt."""

from __future__ import annotations

from dataclasses import dataclass

Edit = tuple[str, str, str]
"""A file below src/interlock, a text that stands in it exactly once, and what takes its place."""


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of one file whose names fit (as pytest's -k); one of them at least must turn red."""

    file: str
    names: str = ""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    victim: str  # who is hurt by it
    edits: tuple[Edit, ...]
    tests: Tests


def mutant(name: str, victim: str, *edits: Edit, tests: Tests) -> Mutant:
    return Mutant(name, victim, edits, tests)


def directed(names: str) -> Tests:
    return Tests("tests/simulation/test_directed.py", names)


def crowded(names: str) -> Tests:
    return Tests("tests/simulation/test_places.py", names)


def cancelled(names: str) -> Tests:
    return Tests("tests/simulation/test_cancellation.py", names)


def inherited(names: str) -> Tests:
    return Tests("tests/attacks/test_cohort.py", names)


def hasty(names: str) -> Tests:
    return Tests("tests/attacks/test_haste.py", names)


def reentered(names: str) -> Tests:
    return Tests("tests/attacks/test_reentrance.py", names)


def watched(names: str) -> Tests:
    return Tests("tests/unit/test_statements.py", names)


def conforming(names: str) -> Tests:
    return Tests("tests/conformance/test_memory.py", names)


def agreeing(names: str = "") -> Tests:
    return Tests("tests/sqlite/test_agreement.py", names)
