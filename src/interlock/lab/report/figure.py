"""A picture of a scenario for a README: one SVG with colours of its own for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from interlock.lab.judge import Run
from interlock.lab.report.canvas import FIGURE
from interlock.lab.report.crowd import CrowdPicture
from interlock.lab.report.entry import Entry
from interlock.lab.report.marks import SHAPES
from interlock.lab.report.picture import FOOT, Picture
from interlock.lab.report.svg import element
from interlock.lab.report.words import run_name, sign
from interlock.lab.scenario import Result
from interlock.lab.texts import Language, Text
from interlock.testing.history import Record

WIDTH = 900
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
        told = element("tspan", f"{mark} {escape(text.in_language(language))}", kind=f"verdict {kind}", dx=10)
        title = element("text", escape(run_name(name).in_language(language)) + told, kind="name", y=14)
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


def _file(title: str, parts: Sequence[str], height: float) -> str:
    tall = f"{height:.0f}"
    return element(
        "svg", element("title", escape(title)), element("style", style("picture.css")), definitions(),
        element("rect", kind="paper", width=WIDTH, height=tall, rx=8), *parts,
        xmlns=NAMESPACE, view_box=f"0 0 {WIDTH} {tall}", width=WIDTH, height=tall, role="img",
    ) + "\n"  # fmt: skip
