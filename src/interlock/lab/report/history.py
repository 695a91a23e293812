"""The histories of a report as JSON lines: kept beside the page, and judged again by newer code.

The first line of each scenario says how it was played; the records of its runs follow, one a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from interlock.errors import InterlockError
from interlock.lab.judge import Run, runs
from interlock.lab.scenario import Result, Scenario
from interlock.testing.history import Record

NUMBERS = ("ttl", "stretch", "took")
RECORD_NUMBERS = (
    *("time", "deadline", "began", "token", "permits", "capacity"),
    *("value", "expected", "line", "amount"),
)
RECORD_TEXTS = ("process", "call", "attempt", "resource", "error", "run", "holder")


class BrokenHistory(InterlockError, ValueError):
    """A line of a history cannot be read; the sentence has its number."""

    def __init__(self, file: str, line: int, why: str) -> None:
        super().__init__(file, line, why)
        self.file, self.line, self.why = file, line, why

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.why}"


@dataclass(slots=True)
class Kept:
    """What was kept of one scenario that was played."""

    scenario: str
    ttl: float = 1.0
    seed: int = 0
    took: float = 0.0
    stretch: float = 1.0
    versions: tuple[str, ...] = ()
    skipped: str = ""
    missing: str = ""
    failure: str = ""
    records: list[Record] = field(default_factory=list[Record])

    def runs(self) -> dict[str, Run]:
        return runs(self.records, self.ttl)

    def judged(self, scenario: Scenario) -> Result:
        """The result, with every run judged by the code of today."""
        found = self.runs()
        return Result(
            scenario,
            runs=found,
            findings={name: scenario.judge(run) for name, run in found.items()},
            seed=self.seed,
            took=self.took,
            stretch=self.stretch,
            versions=self.versions,
            skipped=self.skipped,
            missing=self.missing,
            failure=self.failure,
        )


def write_history(path: Path, results: Sequence[Result]) -> None:
    """Keep everything that a verdict was made from."""
    with path.open("w", encoding="utf-8") as file:
        for result in results:
            file.write(json.dumps(_head(result), ensure_ascii=False) + "\n")
            for run in result.runs.values():
                file.writelines(record.pack() + "\n" for record in run.records)


def read_history(path: Path) -> list[Kept]:
    """All scenarios of a file, in their order; a line that cannot be read raises `BrokenHistory`."""
    found = list[Kept]()
    for number, said in read_objects(path):
        try:
            if "scenario" in said:
                found.append(_kept(said))
            elif not found:
                raise ValueError("a record stands before the line that names its scenario")
            else:
                found[-1].records.append(parsed_record(said))
        except (TypeError, ValueError) as error:
            raise BrokenHistory(str(path), number, str(error)) from None
    return found


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON object of each line that is not empty, with its number; others raise `BrokenHistory`."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                said: Any = json.loads(line)
            except ValueError as error:
                raise BrokenHistory(str(path), number, f"this is no JSON: {error}") from None
            if not isinstance(said, dict):
                raise BrokenHistory(str(path), number, "this is no record, but another kind of JSON")
            yield number, cast("dict[str, Any]", said)


def _head(result: Result) -> dict[str, Any]:
    ttl = next((run.ttl for run in result.runs.values()), result.scenario.ttl)
    said = {
        "scenario": result.scenario.name, "ttl": ttl, "seed": result.seed, "took": result.took,
        "stretch": result.stretch, "versions": list(result.versions), "skipped": result.skipped,
        "missing": result.missing, "failure": result.failure,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value not in ("", [])}


def _kept(said: dict[str, Any]) -> Kept:
    kept = Kept(**{**said, "versions": tuple(said.get("versions", ()))})
    for name in ("scenario", "skipped", "missing", "failure"):
        if not isinstance(getattr(kept, name), str):
            raise ValueError(f"{name} must be a text")
    for name in (*NUMBERS, "seed"):
        checked_number(name, getattr(kept, name))
    return kept


def parsed_record(said: dict[str, Any]) -> Record:
    """The record that a line says; ValueError if something in it is missing or of another type."""
    for name in ("time", "process", "call", "kind"):
        if name not in said:
            raise ValueError(f"this record has no {name}")
    for name in RECORD_NUMBERS:
        checked_number(name, said.get(name, 0))
    for name in RECORD_TEXTS:
        if not isinstance(said.get(name, ""), str):
            raise ValueError(f"{name} must be a text, not {said[name]!r}")
    if said["kind"] not in ("invoke", "ok", "fail", "info"):
        raise ValueError(f"no record has the kind {said['kind']!r}")
    return Record.parse(json.dumps(said))


def checked_number(name: str, value: object) -> None:
    """Raise ValueError unless this is a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {value!r}")
