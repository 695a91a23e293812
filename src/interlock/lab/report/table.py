"""The table of events: all that pictures show, for screen readers, for print, and for exact times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interlock.lab.judge import Run
from interlock.lab.report.entry import Entry, is_crowded, rare
from interlock.lab.report.words import both, run_name, sentence, short_token, tokens_of
from interlock.lab.texts import Text
from interlock.testing.history import Record

MOST_ROWS = 500
"""Rows of a run whose events are not drawn one by one."""

HEADS = (Text("s", "秒"), Text("what happened", "事件"), Text("token", "令牌"), Text("line", "行"))


def table(entry: Entry) -> str:
    """The events of all runs, under the ids that pictures and captions link to."""
    if not any(run.records for run in entry.runs):
        return ""
    bodies = "".join(body(entry, run) for run in entry.runs)
    heads = "".join(f'<th scope="col">{both(head)}</th>' for head in HEADS)
    count = sum(len(run.records) for run in entry.runs)
    title = both(Text(f"All {count:,} events", f"全部 {count:,} 个事件"))
    crowded = [run for run in entry.runs if is_crowded(run)]
    if crowded:
        title = both(Text(f"The rare ones of {count:,} events", f"{count:,} 个事件中罕见的那些"))
    return (
        f'<h3 class="small">{title}</h3><div class="events" tabindex="0">'
        f"<table><thead><tr>{heads}</tr></thead>{bodies}</table></div>"
    )


def body(entry: Entry, run: Run) -> str:
    tokens = tokens_of(run)
    shown: Iterable[tuple[int, Record]] = enumerate(run.records)
    if is_crowded(run):
        needed = {note.index for note in entry.notes[run.name]}
        few = list(rare(run))[:MOST_ROWS]
        shown = sorted(dict([*few, *((index, run.records[index]) for index in needed)]).items())
    rows = "".join(row(entry.event_anchor(run, index), record, tokens) for index, record in shown)
    name = both(run_name(run.name))
    head = f'<tr class="run"><th colspan="4" scope="rowgroup">{name}</th></tr>'
    return f'<tbody data-run="{entry.run_anchor(run)}">{head}{rows}</tbody>'


def row(anchor: str, record: Record, tokens: Sequence[int]) -> str:
    token = short_token(record.token, tokens) if record.token else ""
    kind = f' class="{record.kind}"' if record.kind in ("fail", "info") else ""
    return (
        f'<tr id="{anchor}"{kind}><td>{record.time:.4f}</td><td>{both(sentence(record))}</td>'
        f"<td>{token}</td><td>{record.line or ''}</td></tr>"
    )
