"""The state of a quorum's nodes in an operator's words, and what the operator can do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock.backends.redlock.algorithm.beginning import NodeState
from interlock.backends.redlock.algorithm.operators import FOREIGN, NodeView, merged
from interlock.cli import formatting, json_output
from interlock.model import Standing

HEADING = ("NODE", "STATE", "RUN", "CLOCK", "HIGHEST")
BEGIN_ANEW = "when nothing is held any more, `interlock quorum init --yes` lets all begin anew"


def label(state: NodeState | NodeView) -> str:
    """How the node is named, as `admit` takes it: `127.0.0.1:6379`."""
    return formatting.printable(state.label.removeprefix("Redis at "))


def majority(states: Sequence[NodeState]) -> int:
    return len(states) // 2 + 1


def word(state: NodeState, states: Sequence[NodeState]) -> str:
    """The state in a few words, or why the node cannot be asked."""
    if not state.reachable:
        return _why(state)
    if state.votes:
        return "votes"
    if state.state == "quarantined":
        if not _can_admit(states):
            return "quarantined: too few vote to end it"
        left = state.quarantine_left
        return (
            f"quarantined for {formatting.age(left)} more" if left > 0 else "quarantined until a client looks"
        )
    if state.state == "new":
        return "lost its memory, or is new" if any(one.has_begun for one in _here(states)) else "blank"
    return "restarted, nobody has looked yet" if state.state == "restarted" else state.state


def _why(silent: NodeState | NodeView) -> str:
    """The error of a node, without its advice and address, which would push the other columns off the
    screen.
    """
    return formatting.printable(silent.state.removeprefix(silent.label).lstrip(": ").partition(";")[0])


def predicate(state: NodeState, states: Sequence[NodeState]) -> str:
    """The same, after the name of the node in a sentence."""
    said = word(state, states)
    return said if said.startswith("lost") else f"is {said}"


def _here(states: Sequence[NodeState]) -> list[NodeState]:
    return [state for state in states if state.reachable]


def _can_admit(states: Sequence[NodeState]) -> bool:
    """Whether clients readmit the others by themselves: so many vote that they have met every majority; or
    none was used.
    """
    if all(state.reachable and not state.has_begun for state in states):
        return True
    return sum(state.votes or state.beginning for state in states) > len(states) - majority(states)


def row(state: NodeState, ahead: float | None, states: Sequence[NodeState]) -> tuple[str, ...]:
    """One line of the table; `ahead` is how far its clock is ahead of this machine's."""
    return (
        label(state),
        word(state, states),
        state.run[:8],
        "" if ahead is None else _apart(ahead),
        str(state.top) if state.top else "",
    )


def _apart(seconds: float) -> str:
    return f"{seconds:+.1f} s" if abs(seconds) >= 1 else f"{round(seconds * 1000):+d} ms"


def verdict(states: Sequence[NodeState]) -> tuple[bool, str]:
    """Whether locks can be had, and in one sentence why, or what to do."""
    size, needed = len(states), majority(states)
    votes = sum(state.votes for state in states)
    if votes >= needed:
        return True, f"{votes} of {size} vote: locks can be had"
    if all(state.reachable and state.state == "new" for state in states):
        return True, f"all {size} are blank: locks can be had, the first one starts them"
    return False, f"{votes} of {size} vote, {needed} are needed: no lock can be had; {_advice(states)}"


def _advice(states: Sequence[NodeState]) -> str:
    needed, votes = majority(states), sum(state.votes for state in states)
    away = [label(state) for state in states if not state.reachable]
    restarted = sum(state.reachable and state.state == "restarted" for state in states)
    if restarted and votes + restarted + len(away) >= needed:
        return "when a client asks, it finds out whether those that restarted lost anything"
    if _can_admit(states):
        return "clients that ask admit the others when their time has come"
    if away and votes + len(away) >= needed:
        return f"bring back {', '.join(away)}"
    return f"bring back {', '.join(away)}, and {BEGIN_ANEW}" if away else BEGIN_ANEW


def refusal(used: Sequence[NodeState], away: Sequence[NodeState]) -> str:
    """Why `init` wants to be told twice."""
    names = ", ".join(label(state) for state in (used or away))
    why = "was used before" if len(used) == 1 else "were used before"
    if not used:
        why = "cannot be reached, and may have been used before"
    return (
        f"{names} {why}: what was granted may still be held, and others would be let in beside; when nothing "
        "is held any more, say --yes"
    )


# ---- one resource on each node ----------------------------------------------------------


def said(view: NodeView) -> str:
    """One node's answer about the resource."""
    if view.standings:
        first, *others = view.standings
        return f"granted to {_holder(first)}{f' and {len(others)} more' if others else ''}"
    return "no vote" if view.state == "quarantined" else _why(view)  # `free` is its own word


def _holder(standing: Standing) -> str:
    if standing.who == FOREIGN:
        return FOREIGN
    return (
        f"{formatting.who(standing)}, token {standing.token}" if standing.token else formatting.who(standing)
    )


def standing(resource: str, views: Sequence[NodeView]) -> str:
    """Name the holder of the resource by the votes of the nodes; a claim on fewer than a majority is a
    leftover.
    """
    name, needed = formatting.printable(resource), len(views) // 2 + 1
    heard = [view.standings for view in views if view.state in ("granted", "free")]
    if len(heard) < needed:
        return f"{name}: nobody knows who holds it: {len(heard)} of {len(views)} say, {needed} are needed"
    holders = merged(heard, needed)
    if not holders:
        return f"{name}: free; nobody stands on a majority"
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{name}: {formatting.state(holders[0])} by {_holder(holders[0])}{more}"


# ---- for programs -------------------------------------------------------------------------


def document(state: NodeState, ahead: float | None) -> dict[str, Any]:
    return {
        "node": state.label.removeprefix("Redis at "),
        "reachable": state.reachable,
        "state": state.state if state.reachable else "unreachable",
        "why": "" if state.reachable else state.state,
        "votes": state.votes,
        "quarantine_left": round(state.quarantine_left, 3),
        "run": state.run,
        "clock_ahead": None if ahead is None else round(ahead, 6),
        "highest": state.top,
        "durable": state.durable,
    }


def document_of_view(view: NodeView) -> dict[str, Any]:
    known = view.state in ("granted", "free")
    return {
        "says": view.state if known else "no vote" if view.state == "quarantined" else "no answer",
        "claims": [json_output.of_standing(standing) for standing in view.standings],
    }
