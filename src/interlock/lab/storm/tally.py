"""The lines of a soak added up: a summary for people, and the tables of docs/reliability.md. Pure.

python -m interlock.lab.storm.tally soak.jsonl...     # prints the tables as Markdown
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from interlock.lab.storm.deployments import KINDS
from interlock.lab.storm.faults.fault import ROWS

Line = dict[str, Any]


class Tally:
    """What some rounds came to together."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = [line for line in lines if line["numbers"]]
        self.faults: Counter[str] = Counter()
        self.by_row: Counter[str] = Counter()
        self.promises: dict[str, set[str]] = {}
        for line in self.lines:
            self.faults.update(line["faults"])
            for name, count in line["faults"].items():
                row, _, promise = line["rows"].get(name, "").partition(" ")
                self.by_row[row] += count
                self.promises.setdefault(row, set()).add(promise)

    def total(self, name: str) -> int:
        return int(sum(line["numbers"].get(name, 0) for line in self.lines))

    @property
    def violations(self) -> int:
        return sum(len(line["violations"]) for line in self.lines)

    @property
    def longest_pause(self) -> float:
        return max((line["numbers"].get("longest pause", 0.0) for line in self.lines), default=0.0)


def by_kind(lines: Sequence[Line]) -> dict[str, Tally]:
    """The tally of each kind of servers that was played, in the order of the kinds."""
    return {
        kind: Tally(line for line in lines if line["kind"] == kind)
        for kind in KINDS
        if any(line["kind"] == kind and line["numbers"] for line in lines)
    }


def summary(lines: Sequence[Line]) -> list[str]:
    """What all rounds came to, in a few lines."""
    every = Tally(lines)
    grants, writes = every.total("grants"), every.total("register writes")
    what = f"{grants:,} grants, {writes:,} register writes, {sum(every.faults.values()):,} faults"
    told = [f"{len(every.lines)} rounds: {what}, {every.violations} violations"]
    for kind, tally in by_kind(lines).items():
        counts = f"{tally.total('grants'):>9,} grants  {sum(tally.faults.values()):>6,} faults"
        told.append(f"  {kind:<11} {counts}  {tally.violations} violations")
    for line in lines:
        if not line["numbers"]:
            told.append(f"  {line['kind']}, seed {line['seed']}: {line['why']}")
    return told


# ---- tables ------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def matrix(lines: Sequence[Line]) -> list[str]:
    """Faults x stores: what is promised, how often it happened, and what it came to."""
    tallies = by_kind(lines)
    rows: list[list[str]] = []
    for row, text in ROWS.items():
        cells = [_cell(tally, row) for tally in tallies.values()]
        rows.append([text, *cells])
    return table(["fault", *tallies], rows)


def _cell(tally: Tally, row: str) -> str:
    count = tally.by_row.get(row, 0)
    if not count:
        return "-"
    promised = " ".join(one for one in "ERfL" if one in tally.promises[row])
    return f"{promised}: {count:,}"


def stores(lines: Sequence[Line]) -> list[str]:
    """Each kind of servers with its numbers."""
    rows = [
        [
            kind,
            KINDS[kind].text,
            f"{tally.total('grants'):,}",
            f"{tally.total('register writes'):,}",
            f"{sum(tally.faults.values()):,}",
            f"{tally.total('refused writes'):,}",
            f"{tally.total('overlaps (excused)'):,}",
            f"{tally.longest_pause:.1f} s",
            str(tally.violations),
        ]
        for kind, tally in by_kind(lines).items()
    ]
    head = ["kind", "servers", "grants", "register writes", "faults", "late writes refused",
            "overlaps where they are possible", "longest pause after a fault", "violations"]  # fmt: skip
    return table(head, rows)


def versions(lines: Sequence[Line]) -> list[str]:
    """The versions of all servers that were played on."""
    found = dict.fromkeys(version for line in lines for version in line["versions"])
    return [f"- {version}" for version in sorted(found)]


def read_lines(paths: Iterable[Path]) -> list[Line]:
    return [
        json.loads(line)
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


def seeds(lines: Sequence[Line]) -> list[str]:
    """The seeds of all rounds, by kind and synchronizer."""
    rows: list[list[str]] = []
    for kind in by_kind(lines):
        found: dict[str, list[str]] = {}
        for line in lines:
            if line["kind"] == kind and line["numbers"]:
                found.setdefault(line["synchronizer"], []).append(str(line["seed"]))
        rows.append([kind, "; ".join(f"{used}: {', '.join(some)}" for used, some in found.items())])
    return table(["kind", "seeds"], rows)


def totals(lines: Sequence[Line]) -> list[str]:
    """What was played, when, and what it came to, in one paragraph."""
    every, days = Tally(lines), sorted({line["at"][:10] for line in lines})
    hours = sum(line["took"] for line in lines) / 3600
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    violations = f"**{every.violations} violations**" if every.violations else "**no violation**"
    broken_off = sum(bool(line["why"]) for line in lines)
    commits = ", ".join(dict.fromkeys(line["commit"] for line in lines if line["commit"]))
    grants, writes = every.total("grants"), every.total("register writes")
    faults, refused = sum(every.faults.values()), every.total("refused writes")
    told = f"""\
On {when}, {hours:.1f} hours of storms on one machine with two cores, at commit {commits}:
{len(every.lines)} rounds, **{grants:,} grants**, {writes:,} writes of registers, **{faults:,} faults**,
{refused:,} late writes that the counter refused, and {violations}."""
    if broken_off:
        told += f" {broken_off} rounds broke off before a verdict: a server did not come back in time."
    return told.splitlines()


SECTIONS: dict[str, Callable[[Sequence[Line]], list[str]]] = {
    "totals": totals, "stores": stores, "matrix": matrix, "seeds": seeds, "versions": versions,
}  # fmt: skip


def published(page: str, lines: Sequence[Line]) -> str:
    """The page with its sections made anew; each stands between two comments with its name."""
    for name, made in SECTIONS.items():
        begin, end = f"<!-- soak: {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page has no section {name!r}")
        page = before + begin + "\n" + "\n".join(made(lines)) + "\n\n" + end + after
    return page


def main(page: str, *files: str) -> None:
    lines = read_lines(map(Path, files))
    path = Path(page)
    path.write_text(published(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    print("\n".join(summary(lines)))


if __name__ == "__main__":
    main(*sys.argv[1:])
