"""Results by commit, in `benchmarks/history.csv`: a hot path that became slower is seen when it happens.

`dev.py bench --record` appends a row for each question that was asked, and says which figures are worse than those
recorded before. Ratios to the limit of the same run are compared, and counts, which a busy machine does not change.
"""

from __future__ import annotations

import csv
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.process import ROOT
from benchmarks.question import Result
from benchmarks.rounds import ratio

FILE = ROOT / "benchmarks" / "history.csv"
COLUMNS: tuple[str, ...] = (
    "commit",
    "date",
    "question",
    "cores",
    "rounds",
    "limit",
    "interlock",
    "unit",
    "ratio",
    "facts",
)
WORSE = 1.15  # a ratio that grew by more than this is named: less is the noise between two runs
COUNTED = (
    "python calls",
    "requests a grant",
    "requests a server",
)  # facts that hardly vary: named if they grow by 2 %
KEPT = (*COUNTED, "µs of all servers", "µs of the server", "Jain")


def record(results: list[Result], file: Path = FILE, commit: str | None = None) -> list[str]:
    """Append one row for each result; return a sentence for each figure that is worse than the one recorded before."""
    known = read(file)
    commit = commit or current_commit()
    rows = [_row(result, commit) for result in results if result.question.judged in result.values]
    with file.open("a", newline="", encoding="utf-8") as target:
        writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        writer.writerows(rows)
    last = {(row["question"], row["cores"]): row for row in known}
    return [
        sentence
        for row in rows
        if (before := last.get((row["question"], row["cores"]))) is not None
        for sentence in worse(before, row)
    ]


def read(file: Path = FILE) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as source:
        return list(csv.DictReader(source))


def worse(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What is worse in one row than in an earlier one of the same question."""
    place = f"{now['question']} ({now['cores']} core{'s' * (now['cores'] != '1')})"
    found: list[str] = []
    old, new = float(before["ratio"]), float(now["ratio"])
    if new > old * WORSE:
        found.append(f"{place}: {new:.2f}x, was {old:.2f}x at {before['commit']}")
    told, said = facts(before), facts(now)
    for name in COUNTED:
        if name in told and said.get(name, 0.0) > told[name] * 1.02:
            found.append(f"{place}: {name} {said[name]:g}, was {told[name]:g} at {before['commit']}")
    return found


def facts(row: dict[str, str]) -> dict[str, float]:
    pairs = [part.rsplit(" ", 1) for part in row["facts"].split("; ") if part]
    return {name: float(number) for name, number in pairs}


def _row(result: Result, commit: str) -> dict[str, str]:
    question = result.question
    judged, limit = result.values[question.judged], result.values[question.cases[0].name]
    seen = {name: fact for name, fact in _facts(result).items() if name in KEPT}
    return {
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "question": question.name,
        "cores": str(result.cores),
        "rounds": str(len(judged)),
        "limit": f"{median(limit) * question.scale:.4g}",
        "interlock": f"{median(judged) * question.scale:.4g}",
        "unit": question.unit,
        "ratio": f"{ratio(result, question.judged):.3g}",
        "facts": "; ".join(f"{name} {fact:.4g}" for name, fact in seen.items()),
    }


def _facts(result: Result) -> dict[str, float]:
    # The Greek letter exists twice in Unicode, and Python's keywords are normalised to the other one.
    return {
        name.replace("\u03bc", "\u00b5"): fact for name, fact in result.facts(result.question.judged).items()
    }


def current_commit() -> str:
    """The commit of this tree; + if it has changes that are not committed, other than rows of the table itself."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/history.csv")
    return commit + "+" * bool(changed)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
