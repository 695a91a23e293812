"""The history of a run, one record a line, so that it can be judged afterwards.

A record is written by a process, by the guarded resource, by the store's witness or by whoever injects
faults. All times are true times of one clock: the world's in a simulation, CLOCK_MONOTONIC of one kernel in
a run with real processes. So histories of several processes can be read together, and judged again later.

    call       kind              says
    acquire    invoke ok fail info   a call of the program: `attempt` names it, `limit` is its timeout
    release    invoke ok fail info   likewise; fail: the answer was no; info: nobody knows
    grant      ok                a lease was given: its claim id in `attempt`, since `began`, until `deadline`
    renew      ok                the lease lives until `deadline`
    shrink     ok                the lease keeps only `permits`
    end        ok info           its holder let go (ok) or was told of the loss (info, why in `error`)
    check      ok                the lease said that it is valid; it knew of `deadline`
    accept     ok fail           the guarded resource took `token` and now has `value`, or refused
    get        invoke ok info    a register was read: it had `value`, at the version in `token`
    put        invoke ok fail info   `value` was to be written over the version `expected`; ok: it has the
                                 version `token` now; fail: another version stood there
    touch      fail              a request of `attempt` changed another's claim; how is in `error`
    left       fail              something stayed behind at the end; what is in `error`
    broken     fail              a promise of one synchronizer was broken; which is in `error`
    fault      invoke ok         began or healed: `error` says which; pause, resume, kill name the process
    heal       ok                the last fault has healed: from here on everybody must get on

The scenarios of `interlock.lab` also write down what the store and the bodies did. `run` says in which run of
a scenario a record was written, `line` which line of the shown program was being executed.

    hold       ok fail           a store's own word: `holder` stands in it with `token` until `deadline`;
                                 fail: it does no more (why in `error`: lapsed, released)
    promote    ok                a store became the one that decides
    body       ok fail           the holder's work is done, or was stopped (why in `error`)
    over       ok                the run ends here: what has not ended lasts until now
    measure    ok                the number in `amount` is what `attempt` names
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

Kind = Literal["invoke", "ok", "fail", "info"]


@dataclass(frozen=True, slots=True)
class Record:
    """One event of a run."""

    time: float
    process: str
    call: str
    kind: Kind
    attempt: str = ""
    resource: str = ""
    token: int = 0
    deadline: float = 0.0
    began: float = 0.0
    limit: float | None = None
    permits: int = 1
    capacity: int = 1
    value: int = 0
    expected: int = 0
    error: str = ""
    run: str = ""
    holder: str = ""
    line: int = 0
    amount: float = 0.0

    def pack(self) -> str:
        """One line of JSON; fields that say nothing are left out."""
        said = {name: value for name, value in asdict(self).items() if value != _SILENT[name]}
        return json.dumps(said, ensure_ascii=False)

    @classmethod
    def parse(cls, line: str) -> Record:
        known = {name: value for name, value in json.loads(line).items() if name in _SILENT}
        return cls(**known)

    def __str__(self) -> str:
        parts = [f"{self.time:10.6f}  {self.process:<8} {self.call:<8} {self.kind:<6}", self.attempt or "-"]
        for name in ("resource", "token", "deadline", "limit", "permits", "value", "error"):
            value = getattr(self, name)
            if value != _SILENT[name]:
                parts.append(f"{name}={value:.6f}" if name == "deadline" else f"{name}={value}")
        return " ".join(parts)


_SILENT: dict[str, Any] = {
    field.name: field.default
    for field in fields(Record)  # a field without a default always speaks
}


class History:
    """Records in the order they were written."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.records: list[Record] = []

    def add(self, process: str, call: str, kind: Kind, **rest: Any) -> None:
        self.records.append(Record(self.now(), process, call, kind, **rest))

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def write(self, path: Path) -> None:
        """Keep the history as JSON lines."""
        path.write_text("".join(record.pack() + "\n" for record in self.records), encoding="utf-8")


def read(paths: Iterable[Path]) -> list[Record]:
    """The records of several processes' files, in the order of time."""
    records = [
        Record.parse(line)
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return sorted(records, key=lambda record: record.time)
