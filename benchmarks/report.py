"""What was found: a table for people, JSON for programs, a picture for the docs."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tomllib
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from benchmarks import pace
from benchmarks.question import Result
from benchmarks.rounds import ratio

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def asked_packages() -> list[str]:
    """What pyproject.toml names: the clients that interlock uses, and the libraries to compare with."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    clients = [row for rows in project["project"]["optional-dependencies"].values() for row in rows]
    peers = [
        row for name, rows in project["dependency-groups"].items() if name.startswith("bench") for row in rows
    ]
    names = [re.split(r"[\[<>=!~ ]", row)[0] for row in clients + peers]
    return [name for name in dict.fromkeys(names) if name != "interlock"]


def machine() -> dict[str, object]:
    """The shape of the machine and the versions of what was measured; nothing that names it."""
    packages = {}
    for name in asked_packages():
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    import sqlite3

    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "packages": packages,
        "date": datetime.now(UTC).date().isoformat(),
    }


def verdict(result: Result) -> str:
    question = result.question
    if question.goal is None or question.judged not in result.values:
        return ""
    values = result.values[question.judged]
    value = median(values) * question.scale if question.absolute else ratio(result, question.judged)
    unit = f" {question.unit}" if question.absolute else "x"
    return f"goal <= {question.goal:g}{unit}: {'met' if value <= question.goal else 'MISSED'}"


def table(result: Result) -> str:
    question = result.question
    lines = [f"\n{question.name}: {question.title} ({result.cores} core{'s' * (result.cores > 1)})"]
    for case in question.cases:
        values = sorted(result.values[case.name])
        low, high = values[len(values) // 10], values[-1 - len(values) // 10]
        middle = median(values) * question.scale
        lines.append(
            f"  {case.name:<28} {middle:>10.1f} {question.unit:<3} {ratio(result, case.name):>7.2f}x"
            f"   ({low * question.scale:.1f} to {high * question.scale:.1f})"
        )
        if facts := result.facts(case.name):
            lines.append("      " + ", ".join(f"{name} {fact:,.5g}" for name, fact in facts.items()))
    if text := verdict(result):
        lines.append(f"  {text}")
    if question.note:
        lines.append(f"  {question.note}")
    return "\n".join(lines)


def as_json(results: list[Result]) -> str:
    answers = [
        {
            "question": result.question.name,
            "title": result.question.title,
            "unit": result.question.unit,
            "cores": result.cores,
            "goal": result.question.goal,
            "verdict": verdict(result),
            "rounds": len(result.values[result.question.cases[0].name]),
            "cases": {
                name: {
                    "median": median(values) * result.question.scale,
                    "ratio": ratio(result, name),
                    **({"facts": facts} if (facts := result.facts(name)) else {}),
                }
                for name, values in result.values.items()
            },
        }
        for result in results
    ]
    whole = {"machine": machine(), "quick": pace.hurried(), "answers": answers}
    return json.dumps(whole, indent=2) + "\n"


LONGEST = 400.0  # of a bar: ten times the limit, or twice an absolute goal


def as_svg(results: list[Result]) -> str:
    """Bars, one group a question, longer is slower; the line is the goal. A bar that ends at a gap is longer than shown."""
    rows: list[str] = []
    y = 30
    for result in results:
        question = result.question
        title = f"{question.title} ({result.cores} core{'s' * (result.cores > 1)})"
        rows.append(f'<text x="10" y="{y}" class="t">{escape(title)}</text>')
        top = y + 14
        values: list[str] = []
        for case in question.cases:
            y += 20
            width, told = bar(result, case.name)
            kind = "us" if case.name == question.judged else "them"
            rows.append(f'<text x="190" y="{y + 11}" class="n">{escape(case.name)}</text>')
            rows.append(f'<rect x="200" y="{y}" width="{width:.1f}" height="14" class="{kind}"/>')
            if width >= LONGEST:
                rows.append(f'<path d="M{200 + width - 14:.1f} {y + 16}l6 -18" class="cut"/>')
            for kind in ("halo", "v"):
                values.append(f'<text x="{206 + width:.1f}" y="{y + 11}" class="{kind}">{told}</text>')
        if question.goal is not None:
            x = 200 + (200 if question.absolute else question.goal * 40)
            rows.append(f'<path d="M{x:.1f} {top}V{y + 20}" class="g"/>')
            rows.append(f'<text x="{x:.1f}" y="{y + 31}" class="goal">goal</text>')
        rows += values  # over the line, not under it
        y += 52
    style = (
        "text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.n{text-anchor:end}"
        ".us{fill:#2a7}.them{fill:#aab}.g{stroke:#c33;stroke-dasharray:3}.cut{stroke:#fff;stroke-width:4}"
        ".halo{stroke:#fff;stroke-width:4px}.goal{fill:#c33;font-size:10px;text-anchor:middle}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y}" viewBox="0 0 720 {y}">'
        f'<rect width="100%" height="100%" fill="#fff"/><style>{style}</style>{"".join(rows)}</svg>\n'
    )


def bar(result: Result, case: str) -> tuple[float, str]:
    """How long a case's bar is, and what stands behind it: the ratio, or where the goal is absolute the value."""
    question = result.question
    if not question.absolute or question.goal is None:
        value = ratio(result, case)
        return min(value * 40, LONGEST), f"{value:.2f}x"
    value = median(result.values[case]) * question.scale
    return min(value / question.goal * 200, LONGEST), f"{value:.1f} {question.unit}"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
