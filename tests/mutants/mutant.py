"""A deliberate bug: what is changed, who must notice, and whom it would hurt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.structure import edited


@dataclass(frozen=True, slots=True)
class Code:
    """A change in a Python file below src/interlock: what is changed is known by its function and its structure."""

    file: str
    within: str  # the qualified name of a function or class; empty: anywhere in the file
    old: str
    new: str

    def plant(self, source: Path) -> None:
        """Make the change in a copy of the source; raise `LookupError` unless the code stands there exactly once."""
        path = source / "interlock" / self.file
        try:
            path.write_text(
                edited(path.read_text(encoding="utf-8"), self.within, self.old, self.new), encoding="utf-8"
            )
        except LookupError as error:
            raise LookupError(f"{self.file}, {error}") from None


@dataclass(frozen=True, slots=True)
class Text:
    """A change in a script below src/interlock: a text that stands in it exactly once, and what takes its place."""

    file: str
    old: str
    new: str

    def plant(self, source: Path) -> None:
        """Make the change in a copy of the source; raise `LookupError` unless the text stands there exactly once."""
        path = source / "interlock" / self.file
        text = path.read_text(encoding="utf-8")
        if (times := text.count(self.old)) != 1:
            raise LookupError(f"{self.file}: stands there {times} times, not once:\n{self.old}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


Edit = Code | Text


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
