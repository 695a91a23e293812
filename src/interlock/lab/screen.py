"""The lab on a terminal: live lanes where a picture can be drawn, plain lines in a pipe.

The lanes are drawn from what the judge reads out of the records so far, ten times a second, so the picture on
the terminal, the report and the verdict cannot differ.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import east_asian_width

from interlock._support import clock
from interlock.lab.judge import Run, seconds
from interlock.lab.report.charts import amount, rows_of, shown_measures
from interlock.lab.report.entry import Entry
from interlock.lab.report.words import sentence
from interlock.lab.scenario import NAIVE, RUN_NAMES, Outcome, Result, Scenario
from interlock.lab.spans import Spans, covers
from interlock.lab.status_line import StatusLine
from interlock.lab.texts import Language, Text
from interlock.testing.history import Record

if TYPE_CHECKING:
    from types import TracebackType

    from interlock.cli.output import Output

Span: TypeAlias = tuple[str, str]  # style ("" for plain), text
Line: TypeAlias = list[Span]

REDRAW_S = 0.1
GUTTER = 10  # columns left of the lanes
NEWS = 4  # lines of the latest events below the lanes
WIDEST = 110
NARROWEST = 40
FIRST_SPAN_S = 4.0  # seconds that the lanes cover at first; they double when the run lasts longer
PLAIN = str.maketrans("█▒─·✗✓…", "#%-.x+~")
QUIET_CALLS = ("hold", "renew", "over")  # too many for a pipe

MARKS: dict[Outcome, Span] = {
    Outcome.AS_EXPECTED: ("green", "as expected"),
    Outcome.NOT_AS_EXPECTED: ("red", "NOT AS EXPECTED"),
    Outcome.CANNOT_SAY: ("yellow", "cannot say"),
}
MARKS_ZH: dict[Outcome, str] = {
    Outcome.AS_EXPECTED: "符合预期",
    Outcome.NOT_AS_EXPECTED: "不符合预期",
    Outcome.CANNOT_SAY: "无法判断",
}


class Screen:
    """Plain lines: one for each thing that happens. The parent of the picture."""

    def __init__(self, scenario: Scenario, output: Output, language: Language) -> None:
        self._scenario, self._output, self._language = scenario, output, language
        self._run = ""
        self._zero = 0.0

    def __enter__(self) -> Screen:
        if not self._output.json:
            for line in introduction(self._scenario, self._language, self._output.width or WIDEST):
                self._output.line(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to put back."""

    def show(self, record: Record) -> None:
        """Something has happened; any thread may say so."""
        if self._output.json:
            return
        if record.run != self._run:
            self._run, self._zero = record.run, record.time
            self._output.line(f"\n{RUN_NAMES[record.run].in_language(self._language)}")
        if record.call not in QUIET_CALLS and (told := self._said(record)):
            self._output.line(f"{max(0.0, record.time - self._zero):7.2f} s  {told}")

    def _said(self, record: Record) -> str:
        """A sentence about one record; of a strategy's numbers only the first, for a table has the others."""
        strategy = self._scenario.strategies.get(record.process)
        if record.call != "measure" or not self._scenario.strategies:
            return _told(record, self._language)
        first, measure = next(iter(self._scenario.measures.items()))
        if strategy is None or record.attempt != first:
            return ""
        called = f"{strategy.in_language(self._language)}: {measure.text.in_language(self._language)}"
        return f"{called}: {amount(record.amount, measure)}"

    def conclude(self, result: Result) -> None:
        """Say how it ended."""
        self.close()
        if not self._output.json:
            for line in conclusion(result, self._language, self._output):
                self._output.line(line)


class Picture(Screen):
    """Lanes that grow while the scenario runs, redrawn in place; those of a finished run stay."""

    def __init__(self, scenario: Scenario, output: Output, language: Language) -> None:
        super().__init__(scenario, output, language)
        self._records: list[Record] = []
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._drawn = 0
        self._drawer = threading.Thread(target=self._draw_on, name="lab screen", daemon=True)

    def __enter__(self) -> Screen:
        super().__enter__()
        self._output.raw("\x1b[?25l")
        self._drawer.start()
        return self

    def show(self, record: Record) -> None:
        with self._mutex:
            if record.run != self._run:
                self._draw(still=False)
                self._run, self._zero, self._records = record.run, record.time, []
                self._drawn = 0
            self._records.append(record)

    def close(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._drawer.join()
        with self._mutex:
            self._draw(still=False)
        self._output.raw("\x1b[0m\x1b[?25h")

    def _draw_on(self) -> None:
        while not self._over.wait(REDRAW_S):
            with self._mutex, suppress(OSError):
                self._draw(still=True)

    def _draw(self, *, still: bool) -> None:
        if not self._records:
            return
        width = min(WIDEST, max(NARROWEST, self._output.width or WIDEST) - 1)
        lines = lanes(self._records, self._run, self._scenario.ttl, width, self._language, still=still)
        rows = self._output.size[1] - 1
        painted = [self._painted(line) for line in lines[:rows]]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._output.raw(f"\r{up}" + "".join(f"{line}\x1b[K\n" for line in painted) + "\x1b[J")
        self._drawn = len(painted)

    def _painted(self, line: Line) -> str:
        text = "".join(self._output.paint(part, style) if style else part for style, part in line)
        return text if self._output.unicode else text.translate(PLAIN)


def screen_for(scenario: Scenario, output: Output, language: Language) -> Screen:
    """A picture where one can be drawn, plain lines everywhere else."""
    lively = output.drawable and not output.json and not scenario.strategies  # numbers have no lanes
    kind = Picture if lively else Screen
    return kind(scenario, output, language)


def lanes(
    records: list[Record], name: str, ttl: float, width: int, language: Language, *, still: bool
) -> list[Line]:
    """The picture of a run so far, one line a lane. `still`: it runs, so time goes on to the right."""
    now = Record(clock.now(), "director", "note", "ok") if still else None
    ordered = sorted(records, key=lambda record: record.time)
    run = Run(name, _with_names([*ordered, now] if now and now.time > ordered[-1].time else ordered), ttl)
    span = FIRST_SPAN_S
    while span < run.end:
        span *= 2
    columns = width - GUTTER
    times = [(column + 0.5) * span / columns for column in range(columns)]
    lines: list[Line] = [
        [],
        [("bold", RUN_NAMES[name].in_language(language)), ("dim", f"   {seconds(run.end)}")],
        _lane("", _ruler(span, columns)),
    ]
    lines += [_fault_lane(run, times)] if run.faults else []
    lines += [_store_lane(run, store, times) for store in run.stores]
    lines += [_client_lane(run, client, times) for client in run.clients]
    lines += [_resource_lane(run, span, columns)]
    lines += [
        [("dim", f"{record.time:{GUTTER - 3}.2f} s "), ("", _cut(_told(record, language), columns))]
        for record in [
            one for one in run.records if one.call not in QUIET_CALLS and one is not run.records[-1]
        ][-NEWS:]
    ]
    return lines


def _with_names(records: list[Record]) -> list[Record]:
    """Stores name holders by their claims; clients said which claim is theirs."""
    names = {
        record.attempt: record.process for record in records if record.call == "grant" and record.attempt
    }
    return [
        replace(record, holder=names.get(record.holder, record.holder)) if record.call == "hold" else record
        for record in records
    ]


def _told(record: Record, language: Language) -> str:
    return sentence(replace(record, deadline=0.0)).in_language(language)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _lane(name: str, spans: Line) -> Line:
    return [("bold", f"{name[: GUTTER - 2]:>{GUTTER - 1}} "), *spans]


def _ruler(span: float, columns: int) -> Line:
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if span / step <= columns / 6)
    marks = ""
    for number in range(int(span / step) + 1):
        at = round(number * step * columns / span)
        marks = f"{marks:<{at}}{number * step:g}"
    return [("dim", f"{marks:<{columns}}"[:columns])]


def _glyphs(glyphs: list[Span]) -> Line:
    """Neighbours of one style become one piece."""
    line: Line = []
    for style, glyph in glyphs:
        if line and line[-1][0] == style:
            line[-1] = (style, line[-1][1] + glyph)
        else:
            line.append((style, glyph))
    return line


def _fault_lane(run: Run, times: list[float]) -> Line:
    spans: Spans = [fault.span for fault in run.faults]
    return _lane("fault", _glyphs([("yellow", "▒") if covers(spans, time) else ("", " ") for time in times]))


def _store_lane(run: Run, store: str, times: list[float]) -> Line:
    glyphs: list[Span] = []
    for time in times:
        holder = next(
            (
                lease.holder
                for lease in reversed(run.leases)
                if lease.store == store and lease.span[0] <= time < lease.span[1]
            ),
            "",
        )
        glyphs.append(("cyan", holder[:1]) if holder and time <= run.end else ("", " "))
    return _lane(store, _glyphs(glyphs))


def _client_lane(run: Run, client: str, times: list[float]) -> Line:
    awake, body, belief = run.awake(client), run.body[client], run.belief[client]
    lease, waits = run.lease(client), run.waits[client]
    asked = run.still_waiting.get(client)
    glyphs: list[Span] = []
    for time in times:
        if time > run.end:
            glyphs.append(("", " "))
        elif covers(awake, time):
            glyphs.append(("green", "█") if covers(lease, time) or not run.stores else ("red", "█"))
        elif covers(body, time):
            glyphs.append(("yellow", "▒"))
        elif covers(belief, time):
            glyphs.append(("green", "─"))
        elif covers(waits, time) or (asked is not None and time >= asked):
            glyphs.append(("dim", "·"))
        else:
            glyphs.append(("", " "))
    return _lane(client, _glyphs(glyphs))


def _resource_lane(run: Run, span: float, columns: int) -> Line:
    late = {id(write) for write in run.late_writes("ok")}
    glyphs: list[Span] = [("", " ")] * columns
    for write in [*run.writes("ok"), *run.writes("fail")]:
        at = min(columns - 1, int(write.time * columns / span))
        if write.kind == "fail":
            glyphs[at] = ("yellow", "✗")
        elif id(write) in late:
            glyphs[at] = ("red", "!")
        elif glyphs[at][1] == " ":
            glyphs[at] = ("", "✓")
    return _lane("resource", _glyphs(glyphs))


def introduction(scenario: Scenario, language: Language, width: int) -> list[str]:
    """What is about to be shown."""
    title = f"{scenario.name}: {scenario.title.in_language(language)}"
    return ["", title, *_wrapped(scenario.story.in_language(language), min(width, 100))]


def _wrapped(text: str, width: int) -> list[str]:
    from textwrap import wrap

    if text.isascii() or " " in text[:40]:
        return wrap(text, width)
    half = max(20, width // 2)  # a Chinese character takes two columns
    return [text[at : at + half] for at in range(0, len(text), half)]


def conclusion(result: Result, language: Language, output: Output) -> list[str]:
    """How a scenario ended, in a few lines."""
    lines = ["", output.paint(result.scenario.name, "bold")]
    if result.skipped or result.failure:
        said = result.skipped or result.failure
        word = Text("skipped", "跳过") if result.skipped else Text("broke off", "中断")
        return [*lines, f"{output.paint(word.in_language(language), 'yellow')}: {said}"]
    for name, finding in result.findings.items():
        style, english = MARKS[finding.outcome]
        mark = Text(english, MARKS_ZH[finding.outcome])
        fails = name == NAIVE and result.scenario.naive_fails
        if fails and finding.outcome is Outcome.AS_EXPECTED:
            mark = Text("fails as expected", "如预期失败")
        head = f"{RUN_NAMES[name].in_language(language)}: "
        shown = output.paint(f"[{mark.in_language(language)}]", style)
        lines.append(f"{head}{finding.text.in_language(language)} {shown}")
    if result.scenario.strategies:
        lines += ["", *_numbers(result, language)]
    lines += ["", *_wrapped(result.scenario.lesson.in_language(language), 100)]
    if result.stretch > 1.2:
        slow = Text(
            f"(The machine is busy: times are {result.stretch:.1f} times as long as on a quiet one.)",
            f"（机器繁忙：时间是空闲时的 {result.stretch:.1f} 倍。）",
        )
        lines.append(slow.in_language(language))
    return lines


def _numbers(result: Result, language: Language) -> list[str]:
    """The strategies of a scenario as a table."""
    rows = rows_of(Entry(result, ""))
    measures = shown_measures(result.scenario, rows)
    table = [["", *(one.text.in_language(language) for one in measures.values())]]
    for row in rows:
        cells = (
            amount(row.numbers[key], one) if key in row.numbers else "-" for key, one in measures.items()
        )
        table.append([row.name.in_language(language), *cells])
    widths = [max(_columns(row[index]) for row in table) for index in range(len(table[0]))]
    return ["  ".join(_aligned(row, widths)) for row in table]


def _aligned(row: list[str], widths: list[int]) -> Iterator[str]:
    """The first cell of a row to the left, the numbers to the right."""
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        blank = " " * (width - _columns(cell))
        yield cell + blank if index == 0 else blank + cell


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese character takes two."""
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


class Progress:
    """The terminal while many scenarios run: a line for each that has ended, and one that says what runs."""

    def __init__(self, output: Output, count: int) -> None:
        self._output, self._count = output, count
        self._done = 0
        self._began = clock.now()
        self._status = StatusLine(output)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._status.wipe()

    def tick(self, at_work: list[str], waiting: int) -> None:
        """Show who is at work."""
        took = clock.now() - self._began
        self._status.show(f"{self._done} of {self._count}, {took:.0f} s: {', '.join(at_work)}")

    def show(self, result: Result, language: Language) -> None:
        """One has ended."""
        self._done += 1
        if self._output.json:
            return
        self._status.wipe()
        outcome = result.outcome
        style, word = ("yellow", "skipped") if outcome is None else MARKS[outcome]
        mark = self._output.paint(f"{word:<16}", style)
        self._output.line(f"{mark} {result.scenario.name:<24} {result.took:6.1f} s")
        if outcome is not Outcome.AS_EXPECTED:
            self._output.line(f"    {result.skipped or result.failure}".rstrip() or "")
            for name, finding in result.findings.items():
                if finding.outcome is not Outcome.AS_EXPECTED:
                    self._output.line(f"    {name}: {finding.text.in_language(language)}")
