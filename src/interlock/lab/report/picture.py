"""The picture of one run: its lanes below each other, bands over all of them, and the numbers of captions.

Bands come from the judge alone, so picture and verdict cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock.lab.judge import SHORT_BAND, Run, seconds
from interlock.lab.report.canvas import Canvas, Layout, text_width
from interlock.lab.report.lanes import Lanes
from interlock.lab.report.marks import Marks
from interlock.lab.report.svg import element, number
from interlock.lab.spans import Span, Spans, intersect, subtract, total
from interlock.lab.texts import Language, Text

HEAD = 48.0  # pixels above the lanes, for the numbers of captions and the names of bands
FOOT = 22.0  # pixels below them, for the axis
PIN = 21.0  # pixels from the middle of one caption's number to the next


@dataclass(frozen=True, slots=True)
class Pin:
    """A numbered caption, and the moment that it is about."""

    number: int
    time: float


class Picture:
    """The lanes of one run."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        end: float,
        *,
        link: Callable[[int], str] = str,
        pins: Sequence[Pin] = (),
        language: Language | None = None,
    ) -> None:
        self.run, self.layout, self.pins = run, layout, pins
        self.canvas = Canvas(layout, end, language)
        self.lanes = Lanes(run, self.canvas)
        self.marks = Marks(run, self.canvas, self.lanes, link)
        self.bottom = HEAD + sum(lane.whole for lane in self.lanes.all)
        self.height = self.bottom + FOOT

    def inner(self) -> str:
        """All that is drawn, without the element around it."""
        lanes, y = list[str](), HEAD
        for lane in self.lanes.all:
            lanes.append(lane.drawn(self.canvas, y))
            y += lane.whole
        return "".join((self.axis(), self.bands(), *lanes, self.tags(), self.discs()))

    def svg(self, title: Text) -> str:
        """The picture as an element of the page."""
        width, top = self.layout.width, self.spare()
        return element(
            "svg", self.canvas.title(title), self.inner(), element("path", kind="arrow"),
            element("line", kind="cross", y1=40, y2=number(self.bottom)),
            kind="narrow" if self.layout.narrow else "wide", role="img",
            view_box=f"0 {top} {width} {self.height - top:.0f}",
            data_end=number(self.canvas.end, 4), data_left=self.layout.gutter, data_right=width - 12,
        )  # fmt: skip

    def spare(self) -> int:
        """How many pixels at the top nothing needs."""
        if self.pins:
            return 0
        return 18 if any(spans for _, spans in self.kinds()) else 34

    def axis(self) -> str:
        return axis(self.canvas, self.bottom)

    def bands(self) -> str:
        parts = list[str]()
        for kind, spans in self.kinds():
            for span in spans:
                parts.append(self.canvas.bar(f"band {kind}", span, 40, self.bottom - 40, rx=None))
                parts.append(self.canvas.bar(f"roof {kind}", span, 38, 4, rx=None))
        return element("g", *parts, kind="bands") if parts else ""

    def kinds(self) -> tuple[tuple[str, Spans], ...]:
        return bands(self.run)

    def tags(self) -> str:
        """The names of bands. The longest bands come first, and one that has no room stays without a name."""
        taken: Spans = []
        parts = list[str]()
        for kind, spans in reversed(self.kinds()):
            for span in sorted(spans, key=lambda span: span[0] - span[1]):
                for text in self.names(kind, span):
                    if place := self.room_for(text, kind, span, taken):
                        taken.append(place)
                        parts.append(self.tag(text, kind, span, place))
                        break
        return "".join(parts)

    def room_for(self, text: Text, kind: str, span: Span, taken: Spans) -> Span | None:
        """Where the name of a band begins and ends; None if it would lie on another."""
        width = max(text_width(text.en, 14), text_width(text.zh, 14))
        start, most = self.canvas.x(span[0]), float(self.layout.width)
        place = (most - width, most) if start + width > most else (start, start + width)
        must = kind in ("red", "vain") or not self.run.two_at_work
        if intersect(taken, [place]) or not (must or self.canvas.length(span) > width * 0.9):
            return None
        return place

    def tag(self, text: Text, kind: str, span: Span, place: Span) -> str:
        """A name begins with its band, or ends with the picture."""
        start = self.canvas.x(span[0])
        at_end = place[0] < start
        x, anchor = (self.layout.width - start, "end") if at_end else (0.0, None)
        return self.canvas.at(span[0], self.canvas.write(text, f"tag {kind}", x, 33, anchor))

    def names(self, kind: str, span: Span) -> tuple[Text, ...]:
        """What a band may be called, the longest name first."""
        length = seconds(total([span]))
        if kind == "yellow":
            return (Text("late, no harm", "迟了，无害"),)
        if kind == "vain":
            return (Text(f"nobody gets in · {length}", f"没有人能进入 · {length}"),)
        if kind == "red":
            return (Text(f"two at work · {length}", f"两者同时工作 · {length}"),)
        return Text("late write accepted", "接受了迟到的写入"), Text("late write", "迟到的写入")

    def discs(self) -> str:
        """The numbers of captions, side by side where their moments are too close."""
        parts = list[str]()
        pins = sorted(self.pins, key=lambda pin: (pin.time, pin.number))
        places = spread([self.canvas.x(pin.time) for pin in pins], PIN, self.layout.width - PIN / 2)
        for pin, place in zip(pins, places, strict=True):
            shift = place - self.canvas.x(pin.time)
            parts.append(
                self.canvas.at(
                    pin.time,
                    element("path", kind="leader", d=f"M{number(shift)} 20L0 38V{number(self.bottom)}"),
                    element("circle", kind="disc", cx=shift, cy=11, r=9.5),
                    element("text", str(pin.number), kind="number", x=shift, y=15.5),
                    kind="pin",
                )
            )
        return "".join(parts)


def bands(run: Run) -> tuple[tuple[str, Spans], ...]:
    """The bands of a run by their kind, the worst last, as the verdict counts them."""
    alone = [span for span in subtract(run.harm, run.two_at_work) if total([span]) > SHORT_BAND]
    return (
        ("yellow", run.wrong_without_harm),
        ("vain", run.nobody_in),
        ("red alone", alone),
        ("red", intersect(run.harm, run.two_at_work)),
    )


def axis(canvas: Canvas, bottom: float) -> str:
    """Lines through the picture, and the seconds below it."""
    parts = [element("line", kind="rule", x2=canvas.layout.width, y1=number(bottom), y2=number(bottom))]
    for time in canvas.ticks():
        label = f"{time:g}" if time else "0 s"
        line = element("line", kind="grid", y1=number(HEAD), y2=number(bottom))
        parts.append(canvas.at(time, line, element("text", label, kind="tick", y=bottom + 15), kind="second"))
    return element("g", *parts, kind="axis")


def spread(places: list[float], apart: float, most: float) -> list[float]:
    """The same places, moved until none is nearer to another than this, and none beyond the edge."""
    moved = list[float]()
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else place)
    for index in range(len(moved) - 1, -1, -1):
        limit = most if index == len(moved) - 1 else moved[index + 1] - apart
        moved[index] = min(moved[index], limit)
    return moved
