"""The report: one HTML file that asks nobody for anything, and is complete without its script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from html import escape
from pathlib import Path

from interlock.lab.report.chapter import chapter
from interlock.lab.report.entry import Entry, entries
from interlock.lab.report.figure import definitions, style
from interlock.lab.report.history import write_history
from interlock.lab.report.matrix import matrix, strip
from interlock.lab.report.words import both, version_name
from interlock.lab.scenario import Outcome, Result
from interlock.lab.texts import Language, Text

LEGEND: tuple[tuple[str, Text], ...] = (
    ("lease", Text("store says", "存储认为")),
    ("belief", Text("holder believes", "持有者相信")),
    ("body", Text("at work", "正在工作")),
    ("mistaken", Text("wrong belief", "错误的认识")),
    ("abandoned", Text("holder is gone", "持有者已不在")),
    ("fault", Text("fault", "故障")),
    ("write", Text("write", "写入")),
    ("red", Text("two at work: harm", "两者同时工作：有害")),
    ("yellow", Text("late, no harm", "迟了，无害")),
    ("vain", Text("nobody gets in", "没有人能进入")),
)
"""The kinds of things in a picture, by their class; each can be hidden."""
HIDDEN_AS = {"write": "w"}  # the link around the mark, not the mark

INTRO = Text(
    "Each row is a failure that distributed locks are known for. The same fault meets a naive lock and "
    "interlock, on the same kind of server. The small bars show when each client is at work: grey where it "
    "is frozen inside, red where two are at work at once.",
    "每一行是分布式锁的一种著名故障。同样的故障、同样的服务器，分别遇到朴素的锁和 interlock。"
    "小条表示各客户端何时工作：灰色是被冻结，红色是两者同时工作。",
)


def write_report(
    path: Path, results: Sequence[Result], *, made: datetime, machine: str, language: Language = "en"
) -> None:
    """Write the page, and the history of its runs as JSON lines beside it."""
    write_history(history_beside(path), results)
    text = page(results, made=made, machine=machine, language=language, history=history_beside(path).name)
    path.write_text(text, encoding="utf-8")


def history_beside(path: Path) -> Path:
    return path.with_suffix(".jsonl")


def page(
    results: Sequence[Result], *, made: datetime, machine: str, language: Language = "en", history: str = ""
) -> str:
    """The whole page as HTML."""
    shown = entries(results)
    script = style("page.js")
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>interlock lab</title>"
        f"<style>{style('picture.css')}{style('page.css')}{hiding()}</style></head>"
        f'<body><svg class="defs" aria-hidden="true">{definitions()}</svg>{languages(language)}'
        f"<main>{front(shown, made, machine, history)}{legend(shown)}{''.join(map(chapter, shown))}</main>"
        f"<script>{script}</script></body></html>\n"
    )


def policy(script: str) -> str:
    """Browsers load nothing for this page, and run no script but its own."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def languages(language: Language) -> str:
    """The switch between the languages, which needs no script."""

    def checked(one: str) -> str:
        return " checked" if one == language else ""

    buttons = "".join(
        f'<label><input type="radio" name="language" id="{one}"{checked(one)}>{name}</label>'
        for one, name in (("en", "English"), ("zh", "中文"))
    )
    return f'<nav aria-label="Language · 语言">{buttons}</nav>'


def front(shown: Sequence[Entry], made: datetime, machine: str, history: str) -> str:
    """What was played, when, where and on what, and how it ended."""
    versions = dict.fromkeys(version_name(one) for entry in shown for one in entry.result.versions)
    when = made.strftime("%Y-%m-%d %H:%M %Z").strip()
    about = [when, machine, *versions]
    facts = " · ".join(escape(fact) for fact in about if fact)
    kept = f' · <a href="{escape(history)}">{escape(history)}</a>' if history else ""
    return (
        f'<header class="front"><h1>interlock lab</h1><p class="story">{both(INTRO)}</p>'
        f'<p class="summary">{both(summary(shown))}</p>{strip(list(shown))}'
        f'<p class="meta">{facts}{kept}</p></header>'
        f"{matrix(list(shown))}"
    )


def summary(shown: Sequence[Entry]) -> Text:
    """How many scenarios ended in which way."""
    outcomes = [entry.result.outcome for entry in shown]
    told = (
        Text("1 scenario", "1 个场景")
        if len(shown) == 1
        else Text(f"{len(shown)} scenarios", f"{len(shown)} 个场景")
    )
    parts = [told]
    for outcome, en, zh in (
        (Outcome.AS_EXPECTED, "as expected", "符合预期"),
        (Outcome.NOT_AS_EXPECTED, "not as expected", "不符合预期"),
        (Outcome.CANNOT_SAY, "cannot say", "无法判断"),
        (None, "not played", "未运行"),
    ):
        if count := outcomes.count(outcome):
            parts.append(Text(f"{count} {en}", f"{count} 个{zh}"))
    return Text(" · ".join(part.en for part in parts), " · ".join(part.zh for part in parts))


def legend(shown: Sequence[Entry]) -> str:
    """What the colours and shapes mean. Its boxes hide what they name."""
    if not any(entry.runs for entry in shown):
        return ""
    keys = "".join(
        f'<label class="key"><input type="checkbox" id="show-{kind}" checked><i class="swatch s-{kind}"></i>'
        f"{both(name)}</label>"
        for kind, name in LEGEND
    )
    return f'<div class="legend">{keys}</div>'


def hiding() -> str:
    """The style by which an unticked box of the legend hides its kind."""
    return "".join(
        f"body:has(#show-{kind}:not(:checked)) .picture "
        f":is(.{HIDDEN_AS.get(kind, kind)},.on-{kind}){{display:none}}"
        for kind, _ in LEGEND
    )
