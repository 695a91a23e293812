"""The lanes of a picture: faults, what each store says, every client with its three bars, and the resource.

A lane draws itself from y = 0, and the picture puts it into its place. So a lane can be hidden, and the
others move up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from interlock.lab.judge import SHORT_BAND, Fault, Run, seconds
from interlock.lab.report.canvas import Canvas, text_width
from interlock.lab.report.svg import element, number
from interlock.lab.report.words import STORE_NAMES, fault_word, short_token, tokens_of
from interlock.lab.spans import Span, subtract
from interlock.lab.texts import Text

FEW_CLIENTS = 4  # more of them get thinner bars, without words in them
COLOURS = 8
MOST_FAULT_ROWS = 4


@dataclass(slots=True)
class Lane:
    """A part of the picture with a name of its own; `rows` says where the middle of each of its rows is."""

    key: str
    name: Text
    height: float  # of what it shows, without the space around it
    top: float
    parts: list[str] = field(default_factory=list[str])
    rows: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def whole(self) -> float:
        return self.top + self.height + 7

    def drawn(self, canvas: Canvas, y: float) -> str:
        layout = canvas.layout
        above = layout.narrow and self.top > 7
        baseline = 14.0 if above else self.top + min(self.height, 60) / 2 + 4.5
        name = canvas.write(self.name, "name", 0, baseline)
        rule = element("line", kind="rule", x2=layout.width)
        return element(
            "g", rule, name, *self.parts, kind="lane", data_lane=self.key, data_height=number(self.whole),
            transform=f"translate(0,{number(y)})",
        )  # fmt: skip


class Lanes:
    """Draws the lanes of one run."""

    def __init__(self, run: Run, canvas: Canvas) -> None:
        self.run, self.canvas = run, canvas
        self.tokens = tokens_of(run)
        self.all: list[Lane] = []
        self.compact = len(run.clients) > FEW_CLIENTS
        self.row = 7 if self.compact else 17
        self.fault_rows: dict[tuple[str, float], str] = {}
        self.draw_faults()
        if run.stores:
            self.draw_stores()
        for client in run.clients:
            self.draw_client(client)
        if any(record.call == "accept" for record in run.records):
            self.draw_resource()

    def __getitem__(self, key: str) -> Lane:
        return next(lane for lane in self.all if lane.key == key)

    def begin(self, key: str, name: Text, height: float) -> Lane:
        gutter = self.canvas.layout.gutter - 6
        beside = self.compact and key.startswith("client:") and text_width(name.en, 14) < gutter
        lane = Lane(key, name, height, 19 if self.canvas.layout.narrow and not beside else 7)
        self.all.append(lane)
        return lane

    def colour(self, client: str) -> str:
        """The class of a client's colour in the style sheet."""
        return f"c{self.run.clients.index(client) % COLOURS}" if client in self.run.clients else "c9"

    def row_name(self, lane: Lane, text: Text, middle: float) -> None:
        lane.parts.append(self.canvas.write(text, "row", self.canvas.layout.gutter - 8, middle + 4.2))

    # -- faults ----------------------------------------------------------------------------------

    def draw_faults(self) -> None:
        """Faults that overlap stand below each other."""
        rows: list[float] = []  # where the last fault of each row ends, with its words
        places: list[tuple[Fault, int]] = []
        for fault in self.run.faults:
            start = self.canvas.x(fault.span[0])
            row = next((index for index, end in enumerate(rows) if end <= start), len(rows))
            row = min(row, MOST_FAULT_ROWS - 1)
            words = text_width(f"{fault.process} {fault.what}", 12) + 12
            end = self.canvas.x(fault.span[1])
            rows[row : row + 1] = [end if end - start > words else end + words]
            places.append((fault, row))
        if not places:
            return
        lane = self.begin("faults", Text("faults", "故障"), 18 * len(rows) - 2)
        for fault, row in places:
            top = lane.top + 18 * row
            lane.rows[str(row)] = top + 8
            self.fault_rows |= {(fault.process, time): str(row) for time in fault.span}
            self.draw_fault(lane, fault, top)

    def draw_fault(self, lane: Lane, fault: Fault, top: float) -> None:
        length, what = seconds(fault.span[1] - fault.span[0]), fault_word(fault.what)
        who = Text(f"{fault.process} {what.en}", f"{fault.process} {what.zh}")
        timed = who if fault.what == "killed" else Text(f"{who.en} {length}", f"{who.zh} {length}")
        lane.parts.append(self.canvas.bar("fault", fault.span, top, 16, timed))
        if label := self.canvas.label(fault.span, top + 12.2, "on-fault", timed, who):
            lane.parts.append(label)
        else:  # a fault that is short, such as a kill at the end, is named beside its bar
            beside = self.canvas.x(fault.span[1]) + 5
            room = self.canvas.layout.width - beside
            anchor, x = ("start", 5.0) if room > 90 else ("end", -5.0 - self.canvas.length(fault.span))
            lane.parts.append(
                self.canvas.at(
                    fault.span[1], self.canvas.write(who, "on-fault beside", x, top + 12.2, anchor)
                )
            )

    # -- stores ----------------------------------------------------------------------------------

    def draw_stores(self) -> None:
        """One store has a high bar; several have thin bars below each other, so that a split brain shows."""
        stores, alone = self.run.stores, len(self.run.stores) == 1
        height, gap = (24, 0) if alone else (15, 3)
        name = Text("the store has", "存储的记录") if alone else Text("stores", "各存储")
        if alone and stores[0] not in STORE_NAMES and not self.canvas.layout.narrow:
            name = Text(stores[0], stores[0])
        lane = self.begin("stores", name, len(stores) * (height + gap) - gap)
        for index, store in enumerate(stores):
            top = lane.top + index * (height + gap)
            lane.rows[store] = top + height / 2
            if not alone:
                self.row_name(lane, Text(store, store), top + height / 2)
            for fault in self.run.faults:
                if fault.process in (store, "network"):
                    lane.parts.append(self.canvas.bar("pause", fault.span, top - 1.5, height + 3, rx=None))
            self.draw_store(lane, store, top, height)

    def draw_store(self, lane: Lane, store: str, top: float, height: float) -> None:
        canvas = self.canvas
        for lease in self.run.leases:
            if lease.store != store:
                continue
            who, token = lease.holder, short_token(lease.token, self.tokens) if lease.token else ""
            title = Text(f"{store}: {who} {token}".strip(), f"{store}：{who} {token}".strip())
            kind = f"truth {self.colour(who)}"
            lane.parts.append(canvas.bar(kind, lease.span, top, height, title))
            texts = [
                Text(f"{who} · token {token}", f"{who} · 令牌 {token}"),
                Text(f"{who} · {token}", f"{who} · {token}"),
            ]
            for span in self.long_abandoned(who, lease.span):
                self.draw_abandoned(lane, who, span, top, height)
                lease_span = (lease.span[0], span[0])
                break
            else:
                lease_span = lease.span
            lane.parts.append(
                canvas.label(
                    lease_span, top + height / 2 + 4.5, "on-truth", *(texts if token else ()), Text(who, who)
                )
            )

    def long_abandoned(self, client: str, within: Span) -> list[Span]:
        """Where a store names a client that is gone, if that is worth a look."""
        if client not in self.run.clients:
            return []
        spans = [(max(a, within[0]), min(b, within[1])) for a, b in self.run.abandoned(client)]
        return [(a, b) for a, b in spans if b - a > 0.15 * self.run.ttl]

    def draw_abandoned(self, lane: Lane, who: str, span: Span, top: float, height: float) -> None:
        length = seconds(span[1] - span[0])
        long = Text(f"still {who}, who is gone: {length}", f"仍是 {who}，但它已不在：{length}")
        lane.parts.append(self.canvas.bar("abandoned", span, top, height, long))
        short = Text(f"still {who}", f"仍是 {who}")
        lane.parts.append(self.canvas.label(span, top + height / 2 + 4.5, "on-abandoned", long, short))

    # -- clients ---------------------------------------------------------------------------------

    def draw_client(self, client: str) -> None:
        """Three bars: the lease as the stores have it, the holder's belief, the body at work."""
        run, row = self.run, self.row
        believes = run.stores or any(record.deadline for record in run.records if record.call == "grant")
        names = (["lease"] if run.stores else []) + (["belief"] if believes else []) + ["body"]
        gap = 1 if self.compact else 2
        lane = self.begin(f"client:{client}", Text(client, client), len(names) * (row + gap) - gap)
        tops = {name: lane.top + index * (row + gap) for index, name in enumerate(names)}
        lane.rows = {name: top + row / 2 for name, top in tops.items()}
        if not self.compact:
            for name in names:
                self.row_name(lane, self.bar_name(client, name), lane.rows[name])
        for fault in run.faults:
            if fault.process == client:
                kind = "gone" if fault.what == "killed" else "pause"
                lane.parts.append(self.canvas.bar(kind, fault.span, 1, lane.whole - 2, rx=None))
        if "lease" in tops:
            self.draw_lease(lane, client, tops["lease"])
        if "belief" in tops:
            self.draw_belief(lane, client, tops)
        self.draw_body(lane, client, tops["body"])

    def bar_name(self, client: str, name: str) -> Text:
        small = self.canvas.layout.narrow
        return {
            "lease": Text("store" if small else "store says", "存储" if small else "存储认为"),
            "belief": Text(
                "belief" if small or len(client) > 6 else f"{client} believes",
                "相信" if small else f"{client} 相信",
            ),
            "body": Text("at work", "工作"),
        }[name]

    def draw_lease(self, lane: Lane, client: str, top: float) -> None:
        stores = self.run.stores
        thin = self.row / len(stores)
        for lease in self.run.leases:
            if lease.holder == client:
                y = top + stores.index(lease.store) * thin
                title = Text(f"{lease.store} names {client}", f"{lease.store}：{client}")
                kind = f"lease {self.colour(client)}"
                rx = 2 if thin > 5 else None
                height = thin - (0.6 if len(stores) > 1 else 0)
                lane.parts.append(self.canvas.bar(kind, lease.span, y, height, title, rx))
                for span in self.long_abandoned(client, lease.span):
                    lane.parts.append(self.canvas.bar("abandoned", span, y, height, None, rx))

    def draw_belief(self, lane: Lane, client: str, tops: dict[str, float]) -> None:
        """The lesson: where a belief outlives the lease, and where it ends first."""
        canvas, row, run = self.canvas, self.row, self.run
        top = tops["belief"]
        for span in run.belief[client]:
            title = Text(f"{client} believes that it holds", f"{client} 相信自己持有锁")
            lane.parts.append(canvas.bar(f"belief {self.colour(client)}", span, top, row, title))
        for span in run.mistaken(client):
            if span[1] - span[0] < SHORT_BAND:
                continue
            length = seconds(span[1] - span[0])
            if "lease" in tops:
                lane.parts.append(canvas.bar("nolease", span, tops["lease"], row))
                none = Text(f"not {client}'s any more", f"不再属于 {client}"), Text("none", "没有")
                lane.parts.append(self.inside(span, tops["lease"], "on-gap", *none))
            title = Text(f"{client} is wrong for {length}", f"{client} 错了 {length}")
            lane.parts.append(canvas.bar("mistaken", span, top, row, title))
            texts = (Text(f"still believes: wrong for {length}", f"仍然相信：错了 {length}"),
                     Text(f"wrong for {length}", f"错了 {length}"), Text("wrong", "错了"))  # fmt: skip
            lane.parts.append(self.inside(span, top, "on-mistaken", *texts))
        for told, (known, gone) in run.knew_before():
            if told == client and not self.compact:
                self.draw_margin(lane, client, (known, gone), top)

    def draw_margin(self, lane: Lane, client: str, span: Span, top: float) -> None:
        early = seconds(span[1] - span[0])
        long = Text(f"◂ knew {early} before", f"◂ 早 {early} 知道")
        text = Text(f"◂ {early} early", f"◂ 早 {early}") if self.canvas.layout.narrow else long
        title = Text(f"{client} knew it {early} before the store let go", f"{client} 比存储早 {early} 知道")
        lane.parts.append(self.canvas.bar(f"margin {self.colour(client)}", span, top, self.row, title, None))
        lane.parts.append(
            self.canvas.at(span[1], self.canvas.write(text, "on-margin", 5, top + self.row - 4.5))
        )

    def draw_body(self, lane: Lane, client: str, top: float) -> None:
        canvas, row, run = self.canvas, self.row, self.run
        in_vain = run.stuck(client)
        for span in run.waits[client]:
            length = seconds(span[1] - span[0])
            if in_vain and span[1] - span[0] > run.ttl:
                lane.parts.append(canvas.bar("in-vain", span, top, row))
                texts = Text(f"waits in vain: {length}", f"白白等待 {length}"), Text(length, length)
                lane.parts.append(self.inside(span, top, "on-vain", *texts))
            else:
                title = Text(f"{client} waits {length}", f"{client} 等待 {length}")
                lane.parts.append(canvas.bar("wait", span, top + row / 2 - 0.75, 1.5, title, None))
        awake = run.awake(client)
        for span in run.body[client]:
            for part in subtract([span], awake):
                lane.parts.append(
                    canvas.bar(
                        "frozen", part, top, row, Text(f"{client} is frozen inside", f"{client} 冻结在其中")
                    )
                )
                lane.parts.append(
                    self.inside(
                        part, top, "on-frozen", Text("frozen inside", "冻结在其中"), Text("frozen", "冻结")
                    )
                )
        for span in awake:
            title = Text(f"{client} is at work", f"{client} 正在工作")
            lane.parts.append(canvas.bar(f"body {self.colour(client)}", span, top, row, title))

    def inside(self, span: Span, top: float, kind: str, *texts: Text) -> str:
        """A label inside a bar of a client, if the bars are high enough for words."""
        return "" if self.compact else self.canvas.label(span, top + self.row - 4.5, kind, *texts)

    # -- the resource ----------------------------------------------------------------------------

    def draw_resource(self) -> None:
        """A row for each client while they are few, one row for all otherwise."""
        rows = [] if self.compact else self.run.clients
        lane = self.begin("resource", Text("the resource", "资源"), 17 * max(1, len(rows)))
        lane.rows = {"all": lane.top + 8.5}
        for index, client in enumerate(rows):
            lane.rows[client] = lane.top + 17 * index + 8.5
            writes = Text(f"{client} writes", f"{client} 写入")
            self.row_name(
                lane, writes if self.canvas.layout.narrow else Text(client, client), lane.rows[client]
            )
