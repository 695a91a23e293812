"""The picture of a run that has too many events to draw each: 512 windows of time.

Frequent events become a density. Rare ones that decide (a refused write, a loss, a late write) keep marks of
their own, which are larger than their windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from interlock.lab.judge import Fault, Run, seconds
from interlock.lab.report.canvas import RIGHT, Canvas, Layout
from interlock.lab.report.picture import FOOT, HEAD, axis, bands
from interlock.lab.report.svg import element, number
from interlock.lab.report.words import fault_word
from interlock.lab.spans import Span, union
from interlock.lab.texts import Language, Text
from interlock.testing.history import Record

WINDOWS = 512
NARROW_WINDOWS = 128
CURVE = 40.0  # pixels of height
MOST_NAMED_FAULTS = 12
SPARE = 34  # pixels at the top that only other pictures need


class Windows:
    """A run cut into windows of equal length."""

    def __init__(self, run: Run, count: int = WINDOWS) -> None:
        self.run, self.count = run, count
        self.width = max(run.end, 1e-3) / count

    def index(self, time: float) -> int:
        return min(self.count - 1, max(0, int(time / self.width)))

    def counted(self, records: Iterable[Record]) -> list[float]:
        """How many of these events lie in each window."""
        found = [0.0] * self.count
        for record in records:
            found[self.index(record.time)] += 1
        return found

    def mean(self, spans: Iterable[Span]) -> list[float]:
        """How many of these spans were open, on the average of each window."""
        found = [0.0] * self.count
        for start, end in spans:
            first, last = self.index(start), self.index(end)
            for index in range(first, last + 1):
                left, right = index * self.width, (index + 1) * self.width
                found[index] += max(0.0, min(end, right) - max(start, left)) / self.width
        return found

    def longest(self, spans: Iterable[Span]) -> list[float]:
        """The longest span that ends in each window."""
        found = [0.0] * self.count
        for start, end in spans:
            index = self.index(end)
            found[index] = max(found[index], end - start)
        return found


@dataclass(frozen=True, slots=True)
class Curve:
    """A density of one kind of event."""

    key: str
    name: Text
    values: Sequence[float]
    kind: str
    top: Callable[[float], str]  # how its highest value is written


@dataclass(frozen=True, slots=True)
class Rarity:
    """Events of one kind that each get a mark."""

    key: str
    name: Text
    times: Sequence[float]
    shape: str
    kind: str | None = None


def curves(run: Run, count: int = WINDOWS) -> list[Curve]:
    """The densities of a run; one that is always zero is left out."""
    cut = Windows(run, count)
    bodies = [span for client in run.clients for span in run.awake(client)]
    waits = [span for client in run.clients for span in run.waits[client]]
    grants = cut.counted(record for record in run.records if record.call == "grant")
    whole = Text(f"in {seconds(cut.width)}", f"每 {seconds(cut.width)}")

    def plain(value: float) -> str:
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"

    every = [
        Curve("grants", Text(f"grants {whole.en}", f"授予 {whole.zh}"), grants, "grants", plain),
        Curve("at-work", Text("at work", "正在工作"), cut.mean(bodies), "at-work", plain),
        Curve("waiting", Text("waiting", "等待中"), cut.mean(waits), "waiting", plain),
        Curve("longest", Text("longest wait", "最长等待"), cut.longest(waits), "longest", seconds),
        Curve(
            "writes",
            Text(f"writes {whole.en}", f"写入 {whole.zh}"),
            cut.counted(run.writes("ok")),
            "writes",
            plain,
        ),
    ]
    return [curve for curve in every if any(curve.values)]


def rarities(run: Run) -> list[Rarity]:
    """What must be seen even if it happened once in a million events."""
    late = sorted({write.time for write in (*run.late_writes("ok"), *run.lost_writes)})
    unknown = [
        one.time for one in run.records if one.kind == "info" and one.call in ("acquire", "release", "renew")
    ]
    broken = [one.time for one in run.records if one.call in ("broken", "touch", "left")]
    every = [
        Rarity("late", Text("late write", "迟到的写入"), late, "broken"),
        Rarity("broken", Text("broken promise", "违反承诺"), broken, "broken"),
        Rarity(
            "refused",
            Text("refused", "被拒绝"),
            [one.time for one in run.writes("fail")],
            "refused",
        ),
        Rarity("told", Text("told of loss", "得知失去"), sorted(time for _, time in run.told), "stop"),
        Rarity("unknown", Text("no answer", "没有回答"), unknown, "doubt"),
    ]
    return [rarity for rarity in every if rarity.times]


class CrowdPicture:
    """Densities below faults, and rare events in rows of their own."""

    def __init__(self, run: Run, layout: Layout, end: float, language: Language | None = None) -> None:
        self.run, self.layout = run, layout
        self.canvas = Canvas(layout, end, language)
        self.parts: list[str] = []
        self.y = HEAD
        self.draw_faults()
        for curve in curves(run, NARROW_WINDOWS if layout.narrow else WINDOWS):
            self.draw_curve(curve)
        for rarity in rarities(run):
            self.draw_rarity(rarity)
        self.bottom = self.y

    def inner(self) -> str:
        """All that is drawn, without the element around it."""
        return "".join((axis(self.canvas, self.bottom), self.drawn_bands(), *self.parts))

    def svg(self, title: Text) -> str:
        """The picture as an element of the page."""
        width, height = self.layout.width, self.bottom + FOOT - SPARE
        return element(
            "svg", self.canvas.title(title), self.inner(),
            element("line", kind="cross", y1=40, y2=number(self.bottom)),
            kind=f"crowd {'narrow' if self.layout.narrow else 'wide'}", role="img",
            view_box=f"0 {SPARE} {width} {height:.0f}", data_end=number(self.canvas.end, 4),
            data_left=self.layout.gutter, data_right=width - RIGHT,
        )  # fmt: skip

    def begin(self, name: Text, height: float) -> float:
        """Begin a lane; the y of its first row."""
        top = 19 if self.layout.narrow else 6
        y = self.y + top
        baseline = self.y + 14 if self.layout.narrow else y + height / 2 + 4.5
        self.parts.append(
            element("line", kind="rule", x2=self.layout.width, y1=float(self.y), y2=float(self.y))
        )
        self.parts.append(self.canvas.write(name, "name", 0, baseline))
        self.y = y + height + 6
        return y

    def draw_faults(self) -> None:
        """Faults that would touch are drawn as one bar."""
        if not self.run.faults:
            return
        y = self.begin(Text("faults", "故障"), 16)
        if len(self.run.faults) <= MOST_NAMED_FAULTS:
            for fault in self.run.faults:
                self.draw_fault(fault, y)
            return
        pixel = self.canvas.end / self.layout.width
        for start, end in union(
            [(a, max(b, a + pixel)) for a, b in (fault.span for fault in self.run.faults)]
        ):
            inside = [fault for fault in self.run.faults if start <= fault.span[0] <= end]
            title = Text(f"{len(inside)} faults", f"{len(inside)} 个故障")
            self.parts.append(self.canvas.bar("fault", (start, end), y, 16, title))

    def draw_fault(self, fault: Fault, y: float) -> None:
        what = fault_word(fault.what)
        title = Text(f"{fault.process} {what.en}", f"{fault.process} {what.zh}")
        self.parts.append(self.canvas.bar("fault", fault.span, y, 16, title))
        self.parts.append(self.canvas.label(fault.span, y + 12.2, "on-fault", title))

    def draw_curve(self, curve: Curve) -> None:
        y = self.begin(curve.name, CURVE)
        most = max(curve.values)
        self.parts.append(
            element("path", kind=f"curve {curve.kind}", d=self.path(curve.values, y + CURVE, most))
        )
        top = curve.top(most)
        self.parts.append(self.canvas.write(Text(top, top), "row", self.layout.gutter - 6, y + 9))

    def path(self, values: Sequence[float], bottom: float, most: float) -> str:
        """Steps, one for each window."""
        left, right = self.canvas.x(0), self.canvas.x(self.run.end)
        step = (right - left) / len(values)
        drawn = [f"M{number(left)} {number(bottom)}"]
        last = None
        for index, value in enumerate(values):
            height = number(bottom - value / most * CURVE)
            if height != last:
                drawn.append(f"H{number(left + index * step)}V{height}")
            last = height
        return "".join((*drawn, f"H{number(right)}V{number(bottom)}z"))

    def draw_rarity(self, rarity: Rarity) -> None:
        count = f"{len(rarity.times):,} × "
        y = self.begin(Text(count + rarity.name.en, count + rarity.name.zh), 17) + 8.5
        last = -99.0
        for time in rarity.times:
            x = self.canvas.x(time)
            if x - last >= 4:  # the number beside the lane counts them all
                self.parts.append(self.canvas.at(time, element("use", href=f"#m-{rarity.shape}", y=float(y))))
                last = x

    def drawn_bands(self) -> str:
        """Red is drawn at least three pixels wide, because one moment of harm in an hour must be seen."""
        parts = list[str]()
        pixel = self.canvas.end / self.layout.width
        for kind, spans in bands(self.run):
            for start, end in union([(a, max(b, a + 3 * pixel)) for a, b in spans]):
                parts.append(self.canvas.bar(f"band {kind}", (start, end), 40, self.y - 40, rx=None))
                parts.append(self.canvas.bar(f"roof {kind}", (start, end), 38, 4, rx=None))
        return element("g", *parts, kind="bands") if parts else ""
