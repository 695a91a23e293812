"""`doctor`: what a deployment promises, what is wrong with it, and what mends it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from textwrap import wrap

from interlock.cli import formatting, table, target_store
from interlock.cli.output import Output
from interlock.doctor import Diagnosis, pages
from interlock.model import Finding, Severity

FOUND, COULD_NOT_LOOK = 1, 2
COLOURS = {"danger": "red", "warning": "yellow", "unknown": "cyan", "good": "green", "note": "bold"}
SEVERITY_WIDTH = 9
PIPE_WIDTH = 100  # columns of text for a reader that is no terminal
HEADING = ("WHEN", "TOKENS RISE", "ONE HOLDER", "BLOCKED")


def doctor(options: Namespace, output: Output) -> int:
    """Look, say what was found, and exit with 1 if any of it is at the level that was asked for."""
    if options.explain:
        output.line(pages.page(options.explain).rstrip())
        return 0
    url = options.target or options.url
    with target_store.open_existing(url) as client:
        diagnosis = client.diagnose(options.timeout, probe=options.probe).without(options.ignore)
    level: Severity = options.fail_level
    if output.json:
        output.document(diagnosis.as_dict())
    else:
        for line in report(diagnosis, output):
            output.line(line)
    if diagnosis.unreachable:
        return COULD_NOT_LOOK
    return FOUND if diagnosis.at_least(level) else 0


def report(diagnosis: Diagnosis, output: Output) -> list[str]:
    """The answer first, then what is wrong, then what each failure would do."""
    width = min(output.width or PIPE_WIDTH, PIPE_WIDTH)
    store = output.paint(formatting.printable(diagnosis.store), "bold")
    lines = [store, *wrap(formatting.printable(diagnosis.headline), width)]
    if diagnosis.unreachable:
        return lines
    wrong = [finding for finding in diagnosis.findings if finding.severity != "good"]
    for finding, servers in _together(wrong):
        lines += ["", *_paragraph(finding, servers, width, output)]
    if good := [finding for finding in diagnosis.findings if finding.severity == "good"]:
        names = ", ".join(dict.fromkeys(finding.id for finding in good))
        lines += ["", *_hanging("good", names, width, output)]
    if diagnosis.outlooks:
        lines += ["", *_matrix(diagnosis, output)]
    if (measured := diagnosis.probe) is not None:
        parts = [f"the first lock took {_ms(measured.acquire)}"]
        parts.append(f"a renewal {_ms(measured.renewal_p50)} (p50), {_ms(measured.renewal_p99)} (slowest)")
        if measured.handover is not None:
            parts.append(f"a hand-over {_ms(measured.handover)}")
        lines += ["", *wrap("; ".join(parts), width)]
    return [*lines, "", diagnosis.summary]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _together(findings: Sequence[Finding]) -> list[tuple[Finding, list[str]]]:
    """Each finding once, with the servers of which it is true."""
    servers: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        said = (finding.id, finding.severity, finding.text, finding.remedy)
        first.setdefault(said, finding)
        servers.setdefault(said, []).extend([finding.server] if finding.server else [])
    return [(finding, servers[said]) for said, finding in first.items()]


def _paragraph(finding: Finding, servers: Sequence[str], width: int, output: Output) -> list[str]:
    """A finding, what mends it, and where more is said."""
    where = f"{', '.join(servers)}: " if servers else ""
    lines = _hanging(
        finding.severity, formatting.printable(f"{where}{finding.text}"), width, output, finding.id
    )
    if finding.remedy:
        lines += _hanging("", formatting.printable(f"mend: {finding.remedy}"), width, output)
    return [*lines, *_hanging("", f"more: interlock doctor --explain {finding.id}", width, output)]


def _hanging(severity: str, text: str, width: int, output: Output, id: str = "") -> list[str]:
    """Text beside its severity; further lines stand below the text."""
    margin = " " * SEVERITY_WIDTH
    room = max(20, width - SEVERITY_WIDTH)
    said = wrap(f"[{id}] {text}" if id else text, room, break_on_hyphens=False) or [""]
    first = output.paint(severity, COLOURS.get(severity, "dim")) + margin[len(severity) :]
    return [first + said[0], *(margin + line for line in said[1:])]


def _matrix(diagnosis: Diagnosis, output: Output) -> list[str]:
    rows = [HEADING]
    rows += [(one.failure, one.tokens_rise, one.one_holder, one.blocked) for one in diagnosis.outlooks]
    shown = table.lines(rows, output.width)
    return ["  ".join(cells).rstrip() for cells in shown]
