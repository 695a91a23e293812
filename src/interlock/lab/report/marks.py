"""The marks of events: a shape for each kind, a link to the row of the event, and the lane that it asked."""

from __future__ import annotations

from collections.abc import Callable

from interlock.lab.judge import Run
from interlock.lab.report.canvas import Canvas
from interlock.lab.report.lanes import Lane, Lanes
from interlock.lab.report.svg import element, number
from interlock.lab.report.words import sentence, short_token
from interlock.lab.texts import Text
from interlock.testing.history import Record

IN_BODY = ("acquire", "body", "note")
ARROWS = {"grant": "stores", "renew": "stores", "release": "stores", "acquire": "stores"}
TOUCHING = 3.0  # pixels between two marks that are drawn as one when there are many

SHAPES = (
    '<path id="m-tick" class="tick-mark" d="M0-7.5v15"/>'
    '<path id="m-store" class="tick-mark" d="M0-11v6"/>'
    '<path id="m-fault" class="tick-mark" d="M0-8v16"/>'
    '<path id="m-promote" class="solid" d="M-5 12h10l-5-9z"/>'
    '<path id="m-stop" class="stop" d="M-4-4l8 8m0-8l-8 8"/>'
    '<path id="m-note" class="solid" d="M-4 0l4-4 4 4-4 4z"/>'
    '<path id="m-doubt" class="stop" d="M-3.2-2.4q0-3.4 3.2-3.4t3.2 2.9q0 2-3.2 3.1v1.4M0 5.4v.6"/>'
    '<path id="m-broken" class="alarm" d="M-5-5l10 10m0-10l-10 10"/>'
    '<circle id="m-write" r="4.5"/>'
    '<path id="m-refused" class="refused" d="M-6-6h12v12h-12zM-3-3l6 6m0-6l-6 6"/>'
    '<circle id="m-harm" class="harm" r="7.5"/>'
    '<rect id="m-hit" class="hit" x="-6" y="-9" width="12" height="18"/>'
)
"""The shapes, defined once in a page, because hundreds of events use them."""


class Marks:
    """Puts the events of a run into its lanes."""

    def __init__(self, run: Run, canvas: Canvas, lanes: Lanes, link: Callable[[int], str]) -> None:
        self.run, self.canvas, self.lanes, self.link = run, canvas, lanes, link
        self.late = {id(write) for write in run.late_writes("ok")} | {id(write) for write in run.lost_writes}
        self.merging = len(run.records) > canvas.layout.most_marks
        self.last: dict[tuple[str, str, str], float] = {}
        self.merged = 0  # how many events share the mark of another
        for index, record in enumerate(run.records):
            place = self.place(record)
            if place is None:
                continue
            if self.touches(record, *place):
                self.merged += 1
            else:
                place[0].parts.append(self.mark(index, record, *place))

    def place(self, record: Record) -> tuple[Lane, str] | None:
        """The lane and the row of an event; None if it has no place in the picture."""
        lane, row = self.home(record)
        found = next((one for one in self.lanes.all if one.key == lane), None)
        if found is None:
            return None
        if row not in found.rows:
            row = next(iter(found.rows))
        return found, row

    def home(self, record: Record) -> tuple[str, str]:
        if record.call == "accept":
            return "resource", record.holder
        if record.call == "fault":
            return "faults", self.lanes.fault_rows.get((record.process, record.time), "")
        if record.call in ("hold", "promote"):
            return "stores", record.process
        row = "body" if record.call in IN_BODY else "belief"
        lane = f"client:{record.process}"
        if record.call != "measure" and lane in [one.key for one in self.lanes.all]:
            rows = self.lanes[lane].rows
            return lane, row if row in rows else "body"
        return "", ""

    def is_rare(self, record: Record) -> bool:
        """Whether it must be seen, however close others are."""
        return (
            id(record) in self.late
            or (record.kind == "fail" and record.call in ("accept", "body", "broken", "touch", "left"))
            or record.call in ("fault", "promote", "note")
        )

    def touches(self, record: Record, lane: Lane, row: str) -> bool:
        """Whether it would lie upon the mark before it, where there are too many to see each."""
        if not self.merging or self.is_rare(record):
            return False
        key, x = (lane.key, row, record.call), self.canvas.x(record.time)
        if x - self.last.get(key, -99.0) < TOUCHING:
            return True
        self.last[key] = x
        return False

    def mark(self, index: int, record: Record, lane: Lane, row: str) -> str:
        y = lane.rows[row]
        shape = self.shape(record, y)
        if self.canvas.layout.plain:
            plain = record.call == "accept" or (record.call, record.kind) == ("body", "fail")
            return self.canvas.at(record.time, shape) if plain or record.call == "promote" else ""
        narrow = self.canvas.layout.narrow
        told = sentence(record)
        time = f"{record.time:.3f} s"
        title = () if narrow else (self.canvas.title(Text(f"{time}: {told.en}", f"{time}：{told.zh}")),)
        return element(
            "a", *title, shape, use("hit", y), kind="ev w" if record.call == "accept" else "ev",
            href=f"#{self.link(index)}", data_to=self.arrow(record), data_a=number(record.time, 4),
            transform=f"translate({number(self.canvas.x(record.time))},0)",
        )  # fmt: skip

    def arrow(self, record: Record) -> str | None:
        """The lane at the other end of the request or answer."""
        if record.call == "accept":
            return f"client:{record.holder}"
        if record.call == "hold":
            return f"client:{record.holder}"
        return ARROWS.get(record.call) if self.run.stores else None

    def shape(self, record: Record, y: float) -> str:
        if record.call == "accept":
            return self.write(record, y)
        if record.call == "hold":
            return use("store", y + (1 if len(self.run.stores) == 1 else 3.5))
        if record.call in ("promote", "fault", "note"):
            return use(record.call, y)
        if record.call in ("broken", "touch", "left"):
            return use("broken", y)
        if record.kind == "info" and record.call != "end":
            return use("doubt", y)
        if record.kind == "fail" and record.call in ("body", "acquire"):
            return use("stop", y)
        return use("tick", y) if not self.lanes.compact else ""

    def write(self, record: Record, y: float) -> str:
        """An accepted write is a disc, with a ring if it should not have been; a refused one is a square."""
        if record.kind == "fail":
            return use("refused", y) + self.why_refused(record, y)
        ring = use("harm", y) if id(record) in self.late else ""
        return ring + use("write", y, f"write {self.lanes.colour(record.holder)}")

    def why_refused(self, record: Record, y: float) -> str:
        canvas, narrow = self.canvas, self.canvas.layout.narrow
        if self.last.get(("resource", "refused", ""), -999.0) > canvas.x(record.time) - 90:
            return ""  # there is no room for the words of one that follows at once
        self.last["resource", "refused", ""] = canvas.x(record.time)
        seen = [one.token for one in self.run.records if one.time <= record.time and one.token]
        why = ""
        if record.token and max(seen) > record.token and not narrow:
            tokens = self.lanes.tokens
            why = f": {short_token(record.token, tokens)} < {short_token(max(seen), tokens)}"
        no_room = canvas.layout.width - canvas.x(record.time) < (80 if narrow else 200)
        x, anchor = (-11.0, "end") if no_room else (11.0, None)
        return canvas.write(Text(f"refused{why}", f"拒绝{why}"), "on-refused", x, y + 4.5, anchor)


def use(shape: str, y: float, kind: str | None = None) -> str:
    return element("use", href=f"#m-{shape}", y=float(y), kind=kind)
