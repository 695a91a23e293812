"""A picture of a scenario for a README: one SVG with colours of its own for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from interlock.lab.judge import Run
from interlock.lab.report.canvas import FIGURE, text_width
from interlock.lab.report.charts import Row, amount, bound_of, excess, rows_of, shown_measures
from interlock.lab.report.crowd import CrowdPicture
from interlock.lab.report.entry import Entry
from interlock.lab.report.marks import SHAPES
from interlock.lab.report.picture import FOOT, Picture
from interlock.lab.report.svg import element
from interlock.lab.report.words import run_name, sign
from interlock.lab.scenario import Measure, Result
from interlock.lab.texts import Language, Text
from interlock.testing.history import Record

WIDTH = 900
LINE = 18.0  # pixels from one line of words to the next
NAMESPACE = "http://www.w3.org/2000/svg"  # a name, not an address: nothing is loaded from it

PATTERNS = (
    '<pattern id="p-pause" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="pp" d="M0 0V6"/></pattern>'
    '<pattern id="p-gone" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<path class="pp" d="M1 1l3 3m0-3l-3 3"/></pattern>'
    '<pattern id="p-red" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="pr-wash" width="7" height="7"/><path class="pr" d="M0 0V7"/></pattern>'
    '<pattern id="p-yellow" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<rect class="py-wash" width="7" height="7"/><circle class="py" cx="2" cy="2" r="1.1"/></pattern>'
    '<pattern id="p-vain" width="9" height="9" patternUnits="userSpaceOnUse">'
    '<rect class="pv-wash" width="9" height="9"/><path class="pv" d="M0 4.5H9"/></pattern>'
    '<pattern id="p-wrong" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="pw" width="8" height="8"/><path class="pwl" d="M0 0V8"/></pattern>'
    '<pattern id="p-abandoned" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)">'
    '<rect class="pa-wash" width="6" height="6"/><path class="pa" d="M0 0V6"/></pattern>'
)
"""Hatching, so that no colour stands alone."""


@cache
def style(name: str) -> str:
    """A style sheet or script that stands beside this module."""
    return (files("interlock.lab.report") / name).read_text(encoding="utf-8")


def definitions() -> str:
    """What pictures refer to: patterns and shapes."""
    return f"<defs>{PATTERNS}{SHAPES}</defs>"


def drawn(result: Result, language: Language) -> str:
    """A scenario as one file of SVG: its strategies by their numbers if it has some, else its runs."""
    if result.scenario.strategies:
        return numbers_figure(result, language)
    return figure(result, list(result.runs), language)


def figure(result: Result, names: Sequence[str], language: Language) -> str:
    """The named runs above each other, as one file of SVG that needs nothing else."""
    entry = Entry(result, "figure")
    parts, y = list[str](), 12.0
    for name in names:
        run = result.runs[name]
        picture = Picture(run, FIGURE, entry.end, language=language)
        finding = result.findings.get(name)
        kind, mark, text = "", "", run.verdict()
        if finding:
            (kind, mark, _), text = sign(name, finding), finding.text
        called, seen = run_name(name).in_language(language), f"{mark} {text.in_language(language)}"
        beside = text_width(called, 14) + 10 + text_width(seen, 14) < WIDTH - 40
        place: dict[str, object] = {"dx": 10} if beside else {"x": 0, "dy": LINE}
        verdict = element("tspan", escape(seen), kind=f"verdict {kind}", **place)
        title = element("text", escape(called) + verdict, kind="name", y=14 if beside else 14 - LINE)
        y += 0 if beside else LINE
        parts.append(element("g", title, picture.inner(), transform=f"translate(20,{y:.0f})"))
        y += picture.height + 20
    return _file(result.scenario.title.in_language(language), parts, y)


def storm_figure(records: Iterable[Record], ttl: float, title: Text, language: Language) -> str:
    """A history of thousands of grants as 512 windows of time, as one file of SVG."""
    run = Run("storm", records, ttl)
    picture = CrowdPicture(run, FIGURE, run.end, language)
    told = title.in_language(language)
    name = element("text", escape(told), kind="name", y=14)
    drawn = element("g", name, picture.inner(), transform="translate(20,12)")
    return _file(told, [drawn], picture.bottom + FOOT + 20)


ROW, BARS, CELL = 30.0, 250.0, 88.0  # pixels: height of a row, where bars begin, width of a number's column


def numbers_figure(result: Result, language: Language) -> str:
    """The strategies of a scenario below each other: the first number as a bar, the others as a table."""
    entry = Entry(result, "figure")
    rows = rows_of(entry)
    measures = shown_measures(result.scenario, rows)
    (first, measure), *others = measures.items()
    bound, right = bound_of(entry), WIDTH - 20 - CELL * len(others)
    most = max(row.numbers.get(first, 0.0) for row in rows) or 1.0
    scale = (right - BARS - 165) / most

    def write(text: str, kind: str, x: float, y: float) -> str:
        return element("text", escape(text), kind=kind, x=x, y=y)

    heads = [(BARS, measure), *((right + CELL * index, one) for index, (_, one) in enumerate(others))]
    parts = [write(one.text.in_language(language), "head", x, 38.0) for x, one in heads]
    y = 50.0
    for row in rows:
        parts.append(element("line", kind="rule", x1=20, x2=WIDTH - 20, y1=y, y2=y))
        parts.append(write(row.name.in_language(language), "cell", 20.0, y + 20))
        parts += _bar_of(row, first, measure, bound, scale, y, language)
        for index, (name, one) in enumerate(others):
            value = amount(row.numbers[name], one) if name in row.numbers else "–"
            parts.append(write(value, "cell", right + CELL * index, y + 20))
        y += ROW
    return _file(result.scenario.title.in_language(language), parts, y + 14)


def _bar_of(
    row: Row, name: str, measure: Measure, bound: float | None, scale: float, y: float, language: Language
) -> list[str]:
    """The first number of a row, cut where it exceeds the bound, and what it means."""
    value = row.numbers.get(name, 0.0)
    over = max(0.0, value - bound) if bound is not None else 0.0
    kept = max((value - over) * scale, 2.0)
    bad = over or (bound is not None and value < bound)
    parts = [element("rect", kind="body c0", x=BARS, y=y + 7, width=kept, height=16)]
    if over:
        parts.append(element("rect", kind="band red", x=BARS + kept, y=y + 7, width=over * scale, height=16))
    told = amount(value, measure)
    x = BARS + kept + over * scale + 8
    parts.append(element("text", told, kind=f"verdict {'bad' if bad else 'good'}", x=x, y=y + 20))
    note = escape(excess(over, value, bound).in_language(language))
    return [*parts, element("text", note, kind="head", x=x + text_width(told, 13.5) + 6, y=y + 20)]


def _file(title: str, parts: Sequence[str], height: float) -> str:
    tall = f"{height:.0f}"
    return element(
        "svg", element("title", escape(title)), element("style", style("picture.css")), definitions(),
        element("rect", kind="paper", width=WIDTH, height=tall, rx=8), *parts,
        xmlns=NAMESPACE, view_box=f"0 0 {WIDTH} {tall}", width=WIDTH, height=tall, role="img",
    ) + "\n"  # fmt: skip
