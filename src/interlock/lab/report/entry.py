"""A result as the page shows it: with the ids of its parts, and its captions tied to events. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from interlock.lab.judge import Run
from interlock.lab.report.picture import Pin
from interlock.lab.scenario import RUN_NAMES, Caption, Result
from interlock.lab.texts import Text
from interlock.testing.history import Record

MOST_EVENTS = 2000
"""More events of one run are not drawn one by one: they become windows of time."""
MOST_CLIENTS = 12
"""More clients of one run have no lanes of their own."""


@dataclass(frozen=True, slots=True)
class Note:
    """A caption with its number, and the event that it is about."""

    number: int
    index: int
    text: Text


class Entry:
    """One scenario on the page."""

    def __init__(self, result: Result, anchor: str) -> None:
        self.result, self.anchor = result, anchor

    @property
    def runs(self) -> list[Run]:
        """Its runs, in the order in which all scenarios show them."""
        names = [*RUN_NAMES, *(name for name in self.result.runs if name not in RUN_NAMES)]
        return [self.result.runs[name] for name in names if name in self.result.runs]

    @cached_property
    def end(self) -> float:
        """The end of the axis that its runs share."""
        return max((run.end for run in self.runs), default=0.0) * 1.02

    def run_anchor(self, run: Run) -> str:
        return f"{self.anchor}-{slug(run.name)}"

    def event_anchor(self, run: Run, index: int) -> str:
        return f"{self.run_anchor(run)}-{index + 1}"

    @cached_property
    def notes(self) -> Mapping[str, Sequence[Note]]:
        """The captions of each run whose event happened, numbered through all runs."""
        found: dict[str, list[Note]] = {run.name: [] for run in self.runs}
        number = 0
        for run in self.runs:
            facts = _Facts(run.facts())
            timed = [
                (index, caption.text)
                for caption in self.result.scenario.captions
                if caption.run == run.name and (index := moment(run, caption)) is not None
            ]
            for index, text in sorted(timed, key=lambda one: one[0]):
                number += 1
                words = Text(text.en.format_map(facts), text.zh.format_map(facts))
                found[run.name].append(Note(number, index, words))
        return found

    def pins(self, run: Run) -> list[Pin]:
        return [Pin(note.number, run.records[note.index].time) for note in self.notes[run.name]]


class _Facts(dict[str, str]):
    """The numbers of a run. One that it does not have must not cost the whole report."""

    def __missing__(self, name: str) -> str:
        return "?"


def entries(results: Sequence[Result]) -> list[Entry]:
    """All results with ids that differ, even if a scenario was played twice."""
    taken: set[str] = set()
    found = list[Entry]()
    for result in results:
        name = slug(result.scenario.name)
        anchor, again = name, 1
        while anchor in taken:
            again += 1
            anchor = f"{name}-again-{again}"
        taken.add(anchor)
        found.append(Entry(result, anchor))
    return found


def slug(name: str) -> str:
    """A name as an id: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "unnamed"


def moment(run: Run, caption: Caption) -> int | None:
    """The number of the record that a caption is about; None if it did not happen."""
    matching = [
        index
        for index, record in enumerate(run.records)
        if all(str(getattr(record, name, "")) == value for name, value in caption.at.items())
    ]
    return matching[-1 if caption.last else 0] if matching else None


def is_crowded(run: Run) -> bool:
    """Whether it has more events or clients than can be drawn one by one."""
    return len(run.records) > MOST_EVENTS or len(run.clients) > MOST_CLIENTS


def rare(run: Run) -> Iterator[tuple[int, Record]]:
    """The events of a crowded run that are worth a row: faults, refusals, losses, doubts and late writes."""
    late = {id(write) for write in (*run.late_writes("ok"), *run.lost_writes)}
    for index, record in enumerate(run.records):
        often = record.call == "hold" or (
            record.kind in ("ok", "invoke") and record.call not in ("fault", "promote", "heal", "measure")
        )
        if id(record) in late or not often:
            yield index, record
