"""`quorum`: the nodes of a `redlock://` one by one, and an operator's word on those that lost their
memory.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace

from interlock import urls
from interlock._core.drive import drive
from interlock._core.names import printable_name
from interlock._support import clock
from interlock.backends.redlock import RedlockStore
from interlock.backends.redlock.algorithm.beginning import NodeState
from interlock.backends.redlock.algorithm.operators import NodeView
from interlock.blocking import connect
from interlock.cli import exit_codes, formatting, quorum_report, table
from interlock.cli.output import Output
from interlock.errors import InvalidSetting, InvalidURL, StoreUnavailable

SCHEMES = ("redlock", "redlocks")
COLOURS = {"votes": "green", "blank": "yellow", "quarantined": "yellow"}
RISK = (
    "what it granted before may still be held, and once it votes another may be let in beside that holder; "
    "when nothing is held any more that it was part of, say --yes"
)


def quorum(options: Namespace, output: Output) -> int:
    """Show the nodes, admit one, or let all begin anew; return the code to exit with."""
    url = options.url or os.environ.get("INTERLOCK_URL") or "sqlite://"
    if url.partition("://")[0] not in SCHEMES:  # before connecting: that would make a file of locks
        raise InvalidURL(
            f"{urls.redacted(url)} is no quorum; interlock quorum is for redlock://host1,host2,host3"
        )
    with connect(url) as client:
        store = client._core.store
        assert isinstance(store, RedlockStore)
        return {"status": _status, "admit": _admit, "init": _init}[options.action](store, options, output)


# ---- status -------------------------------------------------------------------------


def _status(store: RedlockStore, options: Namespace, output: Output) -> int:
    """One line a node, then the verdict; exits with 69 if no lock can be had. Changes nothing."""
    name: str = options.name or ""
    if options.name is not None:
        printable_name(name)
    states = drive(store.status())
    views = None if options.name is None else drive(store.view(name))
    able, verdict = quorum_report.verdict(states)
    if output.json:
        found = {"able": able, "verdict": verdict, "majority": quorum_report.majority(states)}
        listed = [quorum_report.document(state, _ahead(state)) for state in states]
        for one, view in zip(listed, views or (), strict=False):
            one.update(quorum_report.document_of_view(view))
        output.document({**found, **({} if views is None else {"resource": name}), "nodes": listed})
    else:
        _show(states, views, name, output)
        if views is not None:
            output.line(quorum_report.standing(name, views))
        output.line(output.paint(verdict, "green" if able else "red"))
    return 0 if able else exit_codes.UNAVAILABLE


def _show(states: list[NodeState], views: list[NodeView] | None, name: str, output: Output) -> None:
    rows = [quorum_report.row(state, _ahead(state), states) for state in states]
    heading: tuple[str, ...] = quorum_report.HEADING
    if views is not None:
        heading = (*heading, formatting.printable(name))
        rows = [
            (*row, quorum_report.said(view) if state.reachable else "no answer")
            for row, view, state in zip(rows, views, states, strict=True)
        ]
    if output.terminal:
        rows = [heading, *rows]
    for cells in table.lines(rows, output.width):
        first = cells[1].split(maxsplit=1)[0]
        cells[1] = output.paint(cells[1], "bold" if first == heading[1] else COLOURS.get(first, "red"))
        output.line(table.GAP.join(cells).rstrip())


def _ahead(state: NodeState) -> float | None:
    """Seconds the node's clock is ahead of this machine's, as people read clocks; the store counts on
    another.
    """
    return None if state.clock_offset is None else state.clock_offset + clock.now() - time.time()


# ---- an operator's word ---------------------------------------------------------------


def _admit(store: RedlockStore, options: Namespace, output: Output) -> int:
    """Give one node its vote before its time."""
    states = drive(store.status())
    state = _named(states, options.node)
    label = quorum_report.label(state)
    if not state.reachable:
        raise StoreUnavailable(f"{label}: {quorum_report.word(state, states)}")
    if not state.votes:
        if not options.yes:
            output.error(f"{label} {quorum_report.predicate(state, states)}: {RISK}", exit_codes.USAGE)
            return exit_codes.USAGE
        state = drive(store.admit(state.label))
        if not state.votes:
            raise StoreUnavailable(
                f"{label} was not admitted: meanwhile it lost its memory again; see interlock quorum status"
            )
        result = f"{label} votes; it accepts no number up to {state.top}"
    else:
        result = f"{label} has its vote already"
    if output.json:
        output.document(quorum_report.document(state, _ahead(state)))
    else:
        output.line(result)
    return 0


def _named(states: list[NodeState], node: str) -> NodeState:
    for state in states:
        if node in (state.label, quorum_report.label(state)):
            return state
    known = ", ".join(quorum_report.label(state) for state in states)
    raise InvalidSetting(f"{formatting.printable(node)} is none of the nodes: {known}")


def _init(store: RedlockStore, options: Namespace, output: Output) -> int:
    """Give every node its vote: blank ones for the asking, used ones on an operator's word."""
    states = drive(store.status())
    away = [state for state in states if not state.reachable]
    if away and not options.missing:
        silent = "; ".join(
            f"{quorum_report.label(state)}: {quorum_report.word(state, states)}" for state in away
        )
        raise StoreUnavailable(
            f"not all nodes can be reached ({silent}); to begin without them say --missing"
        )
    if not all(state.votes for state in states):
        used = [state for state in states if state.reachable and state.has_begun]
        if (used or away) and not options.yes:
            output.error(quorum_report.refusal(used, away), exit_codes.USAGE)
            return exit_codes.USAGE
        states = drive(store.init(missing=options.missing))
    votes = sum(state.votes for state in states)
    if output.json:
        output.document([quorum_report.document(state, _ahead(state)) for state in states])
    else:
        output.line(quorum_report.verdict(states)[1])
    return 0 if votes + len(away) == len(states) else exit_codes.UNAVAILABLE
