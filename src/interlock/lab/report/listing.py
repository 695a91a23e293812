"""The code that ran, line by line. A line knows its number in its file, so that an event can point at it."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import dedent

from interlock.lab.report.entry import Entry
from interlock.lab.report.words import both, run_name
from interlock.lab.scenario import Listing
from interlock.lab.texts import Text

KINDS = {tokenize.COMMENT: "c", tokenize.STRING: "s"}
Token = tuple[int, int, str, str]  # row, column, text, class


def listings(entry: Entry) -> str:
    """The programs of all runs beside each other; runs of the same program share one listing."""
    shown: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for run in entry.runs:
        if run.name in entry.result.scenario.programs:
            one = entry.result.scenario.listing(run.name)
            shown.setdefault((one.first, one.lines), []).append(run.name)
    figures = "".join(
        figure(Listing(first, lines), names) for (first, lines), names in shown.items() if lines
    )
    if not figures:
        return ""
    title = both(Text("The lines that matter", "关键代码"))
    return f'<h3 class="small">{title}</h3><div class="code">{figures}</div>'


def figure(listing: Listing, names: Sequence[str]) -> str:
    caption = " · ".join(both(run_name(name)) for name in names)
    lines = "".join(
        f'<span class="l" data-line="{listing.first + index}">{line or " "}\n</span>'
        for index, line in enumerate(highlighted(listing.lines))
    )
    runs = escape(" ".join(names))
    code = f'<pre tabindex="0">{lines}</pre>'
    return f'<figure data-runs="{runs}"><figcaption>{caption}</figcaption>{code}</figure>'


def highlighted(lines: Sequence[str]) -> list[str]:
    """The lines as HTML, with comments, strings and keywords marked, and without common indentation."""
    code = dedent("\n".join(lines)).split("\n")
    marks: dict[int, list[Token]] = {}
    for token in _tokens("\n".join(code)):
        marks.setdefault(token[0], []).append(token)
    return [_marked(line, marks.get(row, [])) for row, line in enumerate(code, 1)]


def _tokens(code: str) -> Iterator[Token]:
    """Comments, strings of one line, and keywords; nothing if the code cannot be read as Python."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code + "\n").readline):
            kind = KINDS.get(token.type, "k" if keyword.iskeyword(token.string) else "")
            if kind and token.start[0] == token.end[0]:
                yield token.start[0], token.start[1], token.string, kind
    except (tokenize.TokenError, SyntaxError):
        return


def _marked(line: str, tokens: Sequence[Token]) -> str:
    parts, done = list[str](), 0
    for _, column, text, kind in tokens:
        parts += [escape(line[done:column]), f'<i class="{kind}">{escape(text)}</i>']
        done = column + len(text)
    return "".join((*parts, escape(line[done:])))
