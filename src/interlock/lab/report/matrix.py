"""The front of the page: scenarios by locks, each with a sign, a word-sized picture and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from interlock.lab.judge import Run
from interlock.lab.report.charts import amount, bound_of, worst
from interlock.lab.report.crowd import Windows
from interlock.lab.report.entry import MOST_CLIENTS, Entry
from interlock.lab.report.lanes import COLOURS, FEW_CLIENTS
from interlock.lab.report.picture import bands
from interlock.lab.report.svg import element, number
from interlock.lab.report.words import both, run_name, sign
from interlock.lab.scenario import ETCD, GUARDED, MAJORITY, NAIVE, OURS, RUN_NAMES, Outcome
from interlock.lab.spans import Span
from interlock.lab.texts import Text

WIDTH, LEFT = 220.0, 14.0
MINI_WINDOWS = 64
COLUMNS: tuple[tuple[Text, tuple[str, ...]], ...] = (
    (run_name(NAIVE), (NAIVE,)),
    (run_name(OURS), (OURS,)),
    (run_name(GUARDED) + Text("or more", "或其他"), tuple(RUN_NAMES)[2:]),
)
"""The columns: what they are called, and the runs of which a scenario has one there at most."""


def matrix(entries: list[Entry]) -> str:
    heads = "".join(f'<th scope="col">{both(title)}</th>' for title, _ in COLUMNS)
    rows = "".join(row(entry) for entry in entries)
    head = f"<thead><tr><td></td>{heads}</tr></thead>"
    return f'<table class="matrix" id="matrix">{head}<tbody>{rows}</tbody></table>'


def row(entry: Entry) -> str:
    scenario, result = entry.result.scenario, entry.result
    told = f"{scenario.number} · {scenario.name}"
    link = f'<a href="#{entry.anchor}">{both(scenario.title)}</a>'
    title = f'<th scope="row">{link}<small>{escape(told)}</small></th>'
    if result.skipped or result.failure:
        remedy = f" <code>{escape(result.missing)}</code>" if result.missing else ""
        told = both(Text("broke off", "中断") if result.failure else Text("not played", "未运行"))
        why = f"{told}: {escape(result.failure or result.skipped)}{remedy}"
        return f'<tr>{title}<td colspan="{len(COLUMNS)}" class="none">{why}</td></tr>'
    return f"<tr>{title}{''.join(cell(entry, names) for _, names in COLUMNS)}</tr>"


def cell(entry: Entry, names: Sequence[str]) -> str:
    """What happened to one lock; an empty cell where the scenario has no such run."""
    name = next((name for name in names if name in entry.result.findings), "")
    run, finding = entry.result.runs.get(name), entry.result.findings.get(name)
    if run is None or finding is None:
        return '<td class="none">–</td>'
    kind, mark, word = sign(name, finding, naive_fails=entry.result.scenario.naive_fails)
    # On a phone the table has no columns; and what is more than a guard is named everywhere.
    more = " more" if name in (MAJORITY, ETCD) else ""
    lock = f'<small class="lock{more}">{both(run_name(name))}</small>'
    return (
        f'<td class="{kind}"><a href="#{entry.run_anchor(run)}">{lock}<b><span class="sign">{mark}</span> '
        f"{both(word)}</b>{mini(entry, run)}<small>{both(finding.text)}</small></a></td>"
    )


def mini(entry: Entry, run: Run) -> str:
    """The run as a word-sized picture: when each client was at work, or the number that was measured."""
    if told := mini_measure(entry, run):
        return told
    if not run.clients:
        return ""
    if len(run.clients) > MOST_CLIENTS:
        return mini_crowd(entry, run)
    step = 15.0 if len(run.clients) <= FEW_CLIENTS else 6.0
    height = 4 + step * len(run.clients)
    parts = [_bar(entry, f"band {kind}", span, 0, height) for kind, spans in bands(run) for span in spans]
    for index, client in enumerate(run.clients):
        y = 2 + step * index
        colour = f"c{index % COLOURS}"
        if step > 10:
            parts.append(element("text", escape(client[:2]), x=0, y=number(y + 10.5)))
        parts += [_bar(entry, "wait", span, y + step / 2 - 1, 1) for span in run.waits[client]]
        parts += [_bar(entry, "frozen", span, y + 1, step - 3) for span in run.body[client]]
        parts += [_bar(entry, f"body {colour}", span, y + 1, step - 3) for span in run.awake(client)]
    return _svg(height, parts)


def mini_crowd(entry: Entry, run: Run) -> str:
    """How many clients were at work, and where that did harm."""
    values = Windows(run, MINI_WINDOWS).mean(span for client in run.clients for span in run.awake(client))
    most = max(values) or 1.0
    width = _x(entry, run.end) - LEFT
    steps = "".join(
        f"H{number(LEFT + width * index / MINI_WINDOWS)}V{number(30 - value / most * 26)}"
        for index, value in enumerate(values)
    )
    curve = element("path", kind="curve at-work", d=f"M{number(LEFT)} 30{steps}H{number(LEFT + width)}V30z")
    return _svg(32, [*(_bar(entry, "band red", span, 0, 32) for span in run.harm), curve])


def mini_measure(entry: Entry, run: Run) -> str:
    """The number that the scenario is about, on the scale of all its runs."""
    scenario = entry.result.scenario
    if not (found := worst(run, scenario)):
        return ""
    name, value = found
    most = max(one[1] for other in entry.runs if (one := worst(other, scenario))) or 1.0
    bound = bound_of(entry)
    kept = value if bound is None else min(value, bound)
    room = WIDTH - LEFT
    parts = [element("rect", kind="body c0", x=LEFT, y=2, width=max(kept / most * room, 1.5), height=11)]
    if value > kept:
        parts.append(
            element(
                "rect",
                kind="band red",
                x=LEFT + kept / most * room,
                y=2,
                width=(value - kept) / most * room,
                height=11,
            )
        )
    told = amount(value, scenario.measures[name])
    return f'{_svg(15, parts)}<small class="amount">{told}</small>'


def strip(entries: list[Entry]) -> str:
    """All scenarios as one line of squares: how this run of the lab went, at one look."""
    kinds = {
        Outcome.AS_EXPECTED: "good",
        Outcome.NOT_AS_EXPECTED: "broken",
        Outcome.CANNOT_SAY: "unknown",
        None: "none",
    }
    signs = {"good": "✓", "broken": "!", "unknown": "?", "none": "·"}
    squares = list[str]()
    for entry in entries:
        kind, title = kinds[entry.result.outcome], escape(entry.result.scenario.title.en)
        squares.append(f'<a class="{kind}" href="#{entry.anchor}" title="{title}">{signs[kind]}</a>')
    return f'<p class="strip" aria-hidden="true">{"".join(squares)}</p>'


def _x(entry: Entry, time: float) -> float:
    return LEFT + time / (entry.end or 1.0) * (WIDTH - LEFT)


def _bar(entry: Entry, kind: str, span: Span, y: float, height: float) -> str:
    a, b = _x(entry, span[0]), _x(entry, span[1])
    return element("rect", kind=kind, x=a, y=float(y), width=max(b - a, 1.0), height=float(height))


def _svg(height: float, parts: list[str]) -> str:
    view = f"0 0 {WIDTH:.0f} {height:.0f}"
    return element("svg", *parts, kind="mini", view_box=view, aria_hidden="true")
