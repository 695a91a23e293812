"""One scenario on the page: its story, its runs above each other, numbers, code, events and links."""

from __future__ import annotations

from html import escape

from interlock.lab.judge import Run, seconds
from interlock.lab.report.canvas import NARROW, WIDE
from interlock.lab.report.charts import chart
from interlock.lab.report.crowd import WINDOWS, CrowdPicture
from interlock.lab.report.entry import Entry, is_crowded
from interlock.lab.report.listing import listings
from interlock.lab.report.picture import Picture
from interlock.lab.report.table import table
from interlock.lab.report.words import both, run_name, sign, version_name
from interlock.lab.scenario import Link
from interlock.lab.texts import Text

CROWDED = Text(
    "{events} events of {clients} clients, drawn as {windows} windows of time; "
    "the history beside this page has each.",
    "{clients} 个客户端的 {events} 个事件，画成 {windows} 个时间窗口；本页旁边的历史文件里有每一个事件。",
)
MERGED = Text(
    "{hidden} of {events} events lie so close to others that they share a mark; the table has each.",
    "{events} 个事件中有 {hidden} 个与其他事件太近，共用一个标记；表格里有每一个。",
)


def chapter(entry: Entry) -> str:
    """The whole section of one scenario."""
    result = entry.result
    if result.skipped or result.failure:
        return f'<article id="{entry.anchor}">{head(entry)}{skipped(entry)}{links(entry)}</article>'
    panels = "".join(panel(entry, run) for run in entry.runs)
    numbers = chart(entry)
    if numbers:
        numbers = f'<div class="numbers">{numbers}</div>'
    parts = head(entry), numbers, panels, listings(entry), table(entry), links(entry)
    return f'<article id="{entry.anchor}">{"".join(parts)}</article>'


def head(entry: Entry) -> str:
    scenario = entry.result.scenario
    kinds = ", ".join(kind for kind in scenario.servers if kind not in ("", "none"))
    needs = f" · {escape(kinds)}" if kinds else ""
    return (
        f'<header><p class="eyebrow">{scenario.number} · {escape(scenario.name)}{needs}</p>'
        f'<h2>{both(scenario.title)}</h2><p class="story">{both(scenario.story)}</p>'
        f'<p class="lesson">{both(scenario.lesson)}</p>{meta(entry)}</header>'
    )


def meta(entry: Entry) -> str:
    """How it was played, and the command that plays it again."""
    result = entry.result
    facts = list[str]()
    ttl = next((run.ttl for run in entry.runs), 0.0)
    if ttl:
        facts.append(both(Text(f"ttl {seconds(ttl)}", f"ttl {seconds(ttl)}")))
        if ttl < 3:
            whole = f"{ttl * 10:.3g} s"
            facts.append(both(Text(f"stands for {whole}, ten times faster", f"代表 {whole}，快十倍")))
    if result.stretch > 1.05:
        by = f"{result.stretch:.1f}"
        facts.append(
            both(Text(f"{by} times slower, because the machine was busy", f"机器繁忙，放慢 {by} 倍"))
        )
    facts += [escape(version_name(version)) for version in result.versions]
    if result.took:
        facts.append(both(Text(f"took {seconds(result.took)}", f"用时 {seconds(result.took)}")))
    told = " · ".join(facts)
    return (
        f'<p class="meta">{told}</p><p class="meta"><code class="command">{escape(result.command)}</code></p>'
    )


def skipped(entry: Entry) -> str:
    result = entry.result
    remedy = f" <code>apt-get install {escape(result.missing)}</code>" if result.missing else ""
    told = both(Text("Broke off", "中断") if result.failure else Text("Not played", "未运行"))
    return f'<p class="skipped"><b>{told}</b>: {escape(result.failure or result.skipped)}{remedy}</p>'


def panel(entry: Entry, run: Run) -> str:
    """One run: its verdict, its captions, and its picture for wide and for narrow screens."""
    finding, naive_fails = entry.result.findings.get(run.name), entry.result.scenario.naive_fails
    kind, mark, verdict = "", "", run.verdict()
    if finding:
        (kind, mark, _), verdict = sign(run.name, finding, naive_fails=naive_fails), finding.text
    title = Text(f"{run_name(run.name).en}: {verdict.en}", f"{run_name(run.name).zh}：{verdict.zh}")
    items = "".join(
        f'<li value="{note.number}">'
        f'<a href="#{entry.event_anchor(run, note.index)}">{both(note.text)}</a></li>'
        for note in entry.notes[run.name]
    )
    captions = f'<ol class="captions">{items}</ol>' if items else ""
    drawn = pictures(entry, run, title)
    beside = f'<div class="beside">{captions}{drawn}</div>' if drawn or captions else ""
    plain = "" if beside else " plain"
    told = f'<em><span class="sign">{mark}</span> {both(verdict)}</em>'
    return (
        f'<section class="panel {kind}{plain}" id="{entry.run_anchor(run)}">'
        f"<h3><b>{both(run_name(run.name))}</b> {told}</h3>{beside}</section>"
    )


def pictures(entry: Entry, run: Run, title: Text) -> str:
    """The picture for both widths of screen; empty for a run that only measured numbers."""
    if not (run.clients or run.stores or run.faults):
        return ""
    if is_crowded(run):
        drawn = "".join(CrowdPicture(run, layout, entry.end).svg(title) for layout in (WIDE, NARROW))
        facts = {"events": f"{len(run.records):,}", "clients": f"{len(run.clients):,}", "windows": WINDOWS}
        return f'<div class="picture">{drawn}<p class="small">{both(CROWDED.filled(**facts))}</p></div>'

    def link(index: int) -> str:
        return entry.event_anchor(run, index)

    wide, narrow = (
        Picture(run, layout, entry.end, link=link, pins=entry.pins(run)) for layout in (WIDE, NARROW)
    )
    hidden = wide.marks.merged
    note = MERGED.filled(hidden=hidden, events=len(run.records))
    said = f'<p class="small">{both(note)}</p>' if hidden else ""
    return f'<div class="picture">{wide.svg(title)}{narrow.svg(title)}{said}</div>'


def links(entry: Entry) -> str:
    """Something to read on, and the way back."""
    items = "".join(f"<li>{reference(link)}</li>" for link in entry.result.scenario.links)
    read = (
        f'<h3 class="small">{both(Text("Read on", "延伸阅读"))}</h3><ul class="links">{items}</ul>'
        if items
        else ""
    )
    return f'{read}<p class="small"><a href="#matrix">↑ {both(Text("all scenarios", "全部场景"))}</a></p>'


def reference(link: Link) -> str:
    """A link to another site; an address that is not of the web stays words."""
    if not link.url.startswith(("https://", "http://")):
        return escape(link.title)
    return f'<a href="{escape(link.url)}" rel="noreferrer">{escape(link.title)}</a>'
