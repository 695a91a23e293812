"""Charts of numbers: the runs of a scenario beside each other, or many strategies, as of a flash sale.

A chart is a table whose cells have bars: it can be read aloud, printed and copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from interlock.lab.judge import Run, plain_number, seconds
from interlock.lab.report.entry import Entry
from interlock.lab.report.words import both, run_name
from interlock.lab.scenario import Measure, Scenario
from interlock.lab.texts import Text


@dataclass(frozen=True, slots=True)
class Row:
    """One run, or one strategy, with its numbers."""

    name: Text
    run: str
    numbers: Mapping[str, float]


def amount(value: float, measure: Measure) -> str:
    """A number as people read it."""
    if measure.unit == "s":
        return seconds(value) if value >= 0.001 or not value else f"{value * 1000:.2g} ms"
    return f"{plain_number(value)} {measure.unit}".strip()


def shown_measures(scenario: Scenario, rows: Sequence[Row]) -> dict[str, Measure]:
    """The measures that the scenario is about; others are facts for its captions, and stand in the table."""
    return {name: one for name, one in scenario.measures.items() if any(name in row.numbers for row in rows)}


def rows_of(entry: Entry) -> list[Row]:
    """The strategies that were measured, or else the runs."""
    scenario = entry.result.scenario
    if scenario.strategies:
        return [
            Row(name, run.name, numbers)
            for key, name in scenario.strategies.items()
            for run in entry.runs
            if (numbers := run.measures(key))
        ]
    return [Row(run_name(run.name), run.name, numbers) for run in entry.runs if (numbers := run.measures())]


def bound_of(entry: Entry) -> float | None:
    """What the first measure should not exceed, such as the stock of a sale."""
    return next(
        (value for run in entry.runs if (value := run.measures().get(entry.result.scenario.bound))), None
    )


def chart(entry: Entry) -> str:
    """The numbers of a scenario; empty if it measured none."""
    rows = rows_of(entry)
    if not rows:
        return ""
    scenario = entry.result.scenario
    measures = shown_measures(scenario, rows)
    if not measures:
        return ""
    if scenario.strategies:
        return comparison(rows, measures, bound_of(entry))
    return "".join(side_by_side(rows, name, measure) for name, measure in measures.items())


def side_by_side(rows: Sequence[Row], name: str, measure: Measure) -> str:
    """One number of every run that measured it."""
    having = [row for row in rows if name in row.numbers]
    most = max(row.numbers[name] for row in having) or 1.0
    lines = "".join(
        f'<tr class="{escape(row.run)}"><th scope="row">{both(row.name)}</th>'
        f"<td>{bar(row.numbers[name] / most)}<b>{amount(row.numbers[name], measure)}</b></td></tr>"
        for row in having
    )
    return f'<table class="chart"><caption>{both(measure.text)}</caption><tbody>{lines}</tbody></table>'


def comparison(rows: Sequence[Row], measures: Mapping[str, Measure], bound: float | None) -> str:
    """Strategies by numbers. The first number is a bar, cut where it exceeds the bound."""
    (first, measure), *others = measures.items()
    most = max(row.numbers.get(first, 0.0) for row in rows) or 1.0
    heads = "".join(f'<th scope="col">{both(one.text)}</th>' for _, one in others)
    lines = list[str]()
    for row in rows:
        value = row.numbers.get(first, 0.0)
        over = max(0.0, value - bound) if bound is not None else 0.0
        drawn = bar((value - over) / most) + (bar(over / most, "over") if over else "")
        note = f"<small>{both(excess(over, value, bound))}</small>"
        cells = "".join(
            f'<td class="n">{amount(row.numbers[name], one) if name in row.numbers else "–"}</td>'
            for name, one in others
        )
        lines.append(
            f'<tr class="{"bad" if over else "good"}"><th scope="row">{both(row.name)}</th>'
            f"<td>{drawn}<b>{amount(value, measure)}</b> {note}</td>{cells}</tr>"
        )
    head = f'<thead><tr><td></td><th scope="col">{both(measure.text)}</th>{heads}</tr></thead>'
    body = f"<tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide-table"><table class="chart sale">{head}{body}</table></div>'


def excess(over: float, value: float, bound: float | None) -> Text:
    """How a number compares with what is right."""
    if bound is None:
        return Text("", "")
    if over:
        return Text(f"{over:,.0f} too many", f"多 {over:,.0f}")
    if value == bound:
        return Text("exactly", "正好")
    return Text(f"{bound - value:,.0f} left", f"剩 {bound - value:,.0f}")


def bar(part: float, kind: str = "") -> str:
    """A bar; a number that is almost nothing keeps two pixels."""
    return f'<i class="{kind}" style="width:max(2px,{part * 62:.2f}%)"></i>'


def worst(run: Run, scenario: Scenario) -> tuple[str, float] | None:
    """The measure that a run is told by in the matrix: the first that the scenario names, at its highest."""
    for name in scenario.measures:
        values = [one.amount for one in run.records if one.call == "measure" and one.attempt == name]
        if values:
            return name, max(values)
    return None
