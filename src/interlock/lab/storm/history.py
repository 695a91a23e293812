"""The history of a storm in one file: a line that says what it was and how it is judged, then all records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.lab.report.history import BrokenHistory, checked_number, parsed_record, read_objects
from interlock.lab.storm.verdict import StormTerms, Verdict, verdict
from interlock.testing.history import Record


@dataclass(frozen=True, slots=True)
class StormHistory:
    """Everything that a verdict is made from."""

    kind: str
    seed: int
    synchronizer: str
    terms: StormTerms
    records: Sequence[Record]

    def judged(self) -> Verdict:
        """The verdict, by the code of today."""
        return verdict(self.records, self.terms)

    def write(self, path: Path) -> None:
        head = {"storm": self.kind, "seed": self.seed, "synchronizer": self.synchronizer}
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps({**head, **self.terms.pack()}) + "\n")
            file.writelines(record.pack() + "\n" for record in self.records)


def is_storm(path: Path) -> bool:
    """Whether this is the history of a storm, as its first line says; else it is that of scenarios."""
    with path.open(encoding="utf-8", errors="replace") as file:
        try:
            said = json.loads(file.readline())
        except ValueError:
            return False
        return isinstance(said, dict) and "storm" in said


def read_storm(path: Path) -> StormHistory:
    """The history in this file; a line that cannot be read raises `BrokenHistory`, which has its number."""
    head: dict[str, Any] = {}
    records = list[Record]()
    for number, said in read_objects(path):
        try:
            if number == 1:
                head = _checked_head(said)
            else:
                records.append(parsed_record(said))
        except (TypeError, ValueError, KeyError) as error:
            raise BrokenHistory(str(path), number, str(error)) from None
    names = ("ttl", "progress", "tolerance", "resources")
    terms = StormTerms(**{name: head[name] for name in names})
    ordered = sorted(records, key=lambda record: record.time)
    return StormHistory(head["storm"], head["seed"], head["synchronizer"], terms, ordered)


def _checked_head(said: dict[str, Any]) -> dict[str, Any]:
    for name in ("ttl", "progress", "tolerance", "seed"):
        checked_number(name, said.get(name))
    for name in ("storm", "synchronizer"):
        if not isinstance(said.get(name), str):
            raise ValueError(f"{name} must be a text")
    resources = said.get("resources")
    if not isinstance(resources, list) or not all(isinstance(one, str) for one in resources):
        raise ValueError("resources must be a list of names")
    return said
