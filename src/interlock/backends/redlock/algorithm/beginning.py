"""How new nodes begin: the next step, from what each node says. Pure: states in, requests out.

A node without memory may be new, or may have forgotten what it granted. All nodes begin together, and in
three steps, so that the two can be told apart for as long as one node remembers:

    ready    it is told which nodes, in which lives, begin together: their start, a number
    begun    every node has been seen ready for the same start
    voting   every node has been seen begun

When a majority can grant something, the others have begun. If that majority then forgets, its nodes are in
other lives, and no start that names these can reach the nodes that have begun: nobody begins again. If a step
is lost, any client takes it again. A node that forgot is told that the others have begun as soon as a client
sees them together, so it remembers that, too, if the others forget next.

The states may have been read at different times. A node carries out a step only in the life in which it was
seen, so what is old does no harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

from interlock._support.record import record
from interlock.backends.redlock.wire.requests import Admit, Start

Step: TypeAlias = Start | Admit

MAX_STEPS = 3


@record
class NodeState:
    """What one node remembers of the quorum, as operators see it."""

    label: str
    reachable: bool
    state: str  # voting, quarantined, new, restarted, or what is wrong
    quarantine_left: float  # seconds
    run: str
    clock_offset: float | None  # seconds, to this machine's monotonic clock
    top: int  # the highest number it accepted
    numbers: int  # fields in its hash
    durable: bool
    longest: int = 0  # ms
    since: int = 0  # ms, by its own clock
    clock: int = 0  # us
    ready: int = 0  # the start for which it is ready
    begun: bool = False

    @property
    def votes(self) -> bool:
        return self.state == "voting"

    @property
    def has_begun(self) -> bool:
        """Whether it remembers that the quorum has begun: what is new beside it has forgotten something."""
        return self.votes or self.begun or self.top > 0

    @property
    def beginning(self) -> bool:
        """Whether it has begun and has never had a vote: it has nothing to forget, and may vote at once."""
        return self.begun and self.ready > 0


def next_steps(states: Sequence[NodeState], floor: int = 0) -> dict[int, Step]:
    """What to tell the nodes that have no vote; the states are those of all nodes."""
    here = {node: state for node, state in enumerate(states) if state.reachable and state.since}
    if any(state.has_begun for state in states):
        return _joined(states, here, floor)
    if len(here) < len(states):
        return {}
    starts = {state.ready for state in states}
    if len(starts) == 1 and 0 not in starts:
        return {node: Start(state.since, state.ready, begun=True) for node, state in here.items()}
    start = start_of(states)
    return {node: Start(state.since, start) for node, state in here.items() if state.ready != start}


def _joined(states: Sequence[NodeState], here: dict[int, NodeState], floor: int) -> dict[int, Step]:
    """The steps of nodes of which some have begun."""
    steps: dict[int, Step] = {}
    complete = any(state.votes for state in states) or all(state.has_begun for state in states)
    starts = {state.ready for state in states if state.beginning}
    for node, state in here.items():
        if state.beginning:
            if complete:
                steps[node] = Admit(state.since, 0, floor, state.ready)
        elif not state.begun:
            # With a start of 0 it is only told: it is not one of those that begin.
            steps[node] = Start(state.since, state.ready if state.ready in starts else 0, begun=True)
    return steps


def start_of(states: Sequence[NodeState]) -> int:
    """The number of the start of these nodes in their present lives: the same for every client."""
    lives = ",".join(sorted(f"{state.run}:{state.since}" for state in states))
    return 1 + int.from_bytes(hashlib.sha256(lives.encode()).digest()[:6], "big")
