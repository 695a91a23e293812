"""A storm as a picture and as a page: what happened when, in windows of time, and the verdict in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path

from interlock.lab.report.figure import storm_figure
from interlock.lab.storm.chaos import StormResult
from interlock.lab.storm.history import StormHistory
from interlock.lab.texts import Language, Text
from interlock.testing.history import Record

PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1"><style>
:root{{color-scheme:light dark}} body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
svg{{max-width:100%;height:auto}} td{{padding-right:2rem}} td+td{{text-align:right}}
</style></head><body><h1>{title}</h1><p>{verdict}</p>{picture}
<table>{numbers}</table><p>Repeat it: <code>{command}</code>. Versions: {versions}.</p></body></html>
"""  # noqa: E501  (a style sheet)


def for_picture(records: Iterable[Record]) -> Iterator[Record]:
    """The records in the words of scenarios: a fault is named without its promise, and a kill is a death."""
    for record in records:
        if record.call != "fault":
            yield replace(record, run="storm")
        elif record.attempt:
            yield replace(record, run="storm", error=record.error.partition(": ")[2])
        elif record.error == "kill":
            yield replace(record, run="storm", error="killed")


def picture(history: StormHistory, language: Language = "en") -> str:
    """The history as one file of SVG."""
    title = f"{history.kind}, {history.synchronizer}, seed {history.seed}"
    return storm_figure(for_picture(history.records), history.terms.ttl, Text(title, title), language)


def write_page(path: Path, result: StormResult, history: StormHistory) -> None:
    """Write the page, and the history as JSON lines beside it."""
    history.write(path.with_suffix(".jsonl"))
    verdict = history.judged()
    rows = [(name, f"{value:g}") for name, value in verdict.numbers.items()]
    rows += [(f"fault: {name}", str(count)) for name, count in result.faults.items()]
    told = "Nothing happened that must never happen."
    if verdict.violations:
        told = "; ".join(str(one) for one in verdict.violations)
    page = PAGE.format(
        title=escape(f"A storm over {history.kind}, seed {history.seed}"),
        verdict=escape(told),
        picture=picture(history),
        numbers="".join(f"<tr><td>{escape(name)}</td><td>{value}</td></tr>" for name, value in rows),
        command=escape(result.command),
        versions=escape(", ".join(result.versions) or "unknown"),
    )
    path.write_text(page, encoding="utf-8")
