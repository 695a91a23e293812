"""A drawing on an axis of time: where a moment lies, bars, marks, and labels that fit into their bars. Pure.

Everything that has a time carries it as `data-a` (and `data-b`), so that the script of the page can space it
evenly. A picture is drawn twice, for wide and for narrow screens, because a wide one that was scaled down to
a phone would have letters of four pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from interlock.lab.report.svg import element, number
from interlock.lab.report.words import both, in_one
from interlock.lab.spans import Span
from interlock.lab.texts import LANGUAGES, Language, Text

RIGHT = 12  # pixels that stay free on the right, for marks at the end
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True, slots=True)
class Layout:
    """Measures of a picture in pixels."""

    width: int
    gutter: int  # left of the axis, for names
    narrow: bool = False  # names stand above their lanes, and marks have no titles
    plain: bool = False  # no links: for a figure outside of the page
    most_marks: int = 150  # beyond it, marks that would touch become one


WIDE = Layout(1040, 138)
NARROW = Layout(358, 58, narrow=True, most_marks=50)
FIGURE = Layout(860, 128, plain=True, most_marks=60)


def text_width(text: str, size: float = 12.5) -> float:
    """About how wide a text is, rather too much than too little."""
    return sum(size * (1.02 if east_asian_width(one) in "WF" else 0.59) for one in text)


class Canvas:
    """Draws on an axis from 0 to `end` seconds. Without a language, it writes both."""

    def __init__(self, layout: Layout, end: float, language: Language | None = None) -> None:
        self.layout, self.end, self.language = layout, max(end, 1e-3), language

    def x(self, time: float) -> float:
        room = self.layout.width - self.layout.gutter - RIGHT
        return round(self.layout.gutter + time / self.end * room, 1)

    def length(self, span: Span) -> float:
        return self.x(span[1]) - self.x(span[0])

    def bar(
        self, kind: str, span: Span, y: float, height: float, title: Text | None = None, rx: float | None = 2
    ) -> str:
        """A bar from one moment to another. Its title is for a mouse, so a narrow picture has none."""
        told = () if title is None or self.layout.narrow else (self.title(title),)
        return element(
            "rect", *told, kind=kind, data_a=_time(span[0]), data_b=_time(span[1]),
            x=self.x(span[0]), y=float(y), width=max(self.length(span), 1.0), height=float(height), rx=rx,
        )  # fmt: skip

    def at(self, time: float, *inner: str, kind: str = "at") -> str:
        """Something at one moment, drawn around x = 0."""
        return element(
            "g", *inner, kind=kind, data_a=_time(time), transform=f"translate({number(self.x(time))},0)"
        )

    def title(self, text: Text) -> str:
        return f"<title>{escape(in_one(text, self.language))}</title>"

    def write(self, text: Text, kind: str, x: float, y: float, anchor: str | None = None) -> str:
        """Words, in the language of the canvas or in both."""
        inner = escape(text.in_language(self.language)) if self.language else both(text, "tspan")
        return element("text", inner, kind=kind, x=float(x), y=float(y), text_anchor=anchor)

    def label(self, span: Span, y: float, kind: str, *texts: Text) -> str:
        """The first of these texts that has room inside a bar, for each language on its own; maybe none."""
        room = self.length(span) - 9
        fitting = {
            language: next(
                (one for text in texts if text_width(one := text.in_language(language)) < room), ""
            )
            for language in LANGUAGES
        }
        chosen = Text(fitting["en"], fitting["zh"])
        if not any(fitting.values()) or (self.language and not chosen.in_language(self.language)):
            return ""
        return self.at(span[0], self.write(chosen, kind, 5, y))

    def ticks(self) -> list[float]:
        """The moments that the axis names."""
        most = 6 if self.layout.narrow else 12
        step = next((size for size in STEPS if self.end / size < most), self.end / most)
        return [number * step for number in range(int(self.end / step) + 1)]


def _time(time: float) -> str:
    return number(time, 4)
