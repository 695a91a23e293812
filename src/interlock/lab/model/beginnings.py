"""The model of how new nodes begin, while all of them but one may lose their memory.

    again     a majority votes that knows nothing of what another granted

A client may have read each node at any time, however long ago, and every request may be late, lost or
repeated. The rules of the client and of the node are the shipped ones. Nodes that lost their memory are not
readmitted here: see `leases`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

from interlock.backends.redlock.algorithm import beginning
from interlock.backends.redlock.algorithm.beginning import NodeState, Step
from interlock.backends.redlock.wire.requests import Admit, Start
from interlock.lab.model.search import Label
from interlock.testing.redlock_node import NodeMemory

NOW = 10**9
Rule = Callable[[Sequence[NodeState]], dict[int, Step]]


class Node(NamedTuple):
    life: int = 1
    ready: int = 0
    begun: bool = False
    votes: bool = False


class State(NamedTuple):
    nodes: tuple[Node, ...]
    seen: tuple[frozenset[Node], ...]  # by node: all that a client may have read
    granted: frozenset[int] = frozenset()  # the nodes that granted something, and remember it
    used: bool = False  # something was granted


def at_once(states: Sequence[NodeState]) -> dict[int, Step]:
    """Nodes that accepted no number are taken for new."""
    if not all(state.reachable for state in states):
        return {}
    return {node: Admit(state.since, 0, 0) for node, state in enumerate(states) if state.since}


def in_two_steps(states: Sequence[NodeState]) -> dict[int, Step]:
    """A node votes when all have been seen ready; the others need not know."""
    starts = {state.ready for state in states}
    if all(state.reachable and not state.votes for state in states) and len(starts) == 1 and 0 not in starts:
        return {node: Admit(state.since, 0, 0) for node, state in enumerate(states)}
    return beginning.next_steps(states)


def without_lives(states: Sequence[NodeState]) -> dict[int, Step]:
    """A start is any start: it does not say in which lives the nodes begin."""
    steps = beginning.next_steps(states)
    return {
        n: s if isinstance(s, Admit) else Start(s.since, s.start and 1, s.begun) for n, s in steps.items()
    }


@dataclass(frozen=True, slots=True)
class Beginning:
    """A way to begin, and what is to be found."""

    name: str
    text: str
    rule: Rule = beginning.next_steps
    guilty: bool = False


BEGINNINGS = [
    Beginning("beginning", "what is shipped"),
    Beginning("beginning at once", "nodes that accepted no number are new", at_once, True),
    Beginning("beginning in two steps", "a node is left behind that knows nothing", in_two_steps, True),
    Beginning("beginning, whatever the lives", "an old look is believed", without_lives, True),
]


class Beginnings:
    """A `Model` of some new nodes, any number of clients, and one grant."""

    def __init__(self, rule: Rule, nodes: int = 3, *, any_time: bool = False) -> None:
        self.size = nodes
        self.majority = nodes // 2 + 1
        self._rule = rule
        self._any_time = any_time  # memory is lost also before anything was granted
        self._told = cache(self._after)

    def first(self) -> State:
        return State((Node(),) * self.size, (frozenset({Node()}),) * self.size)

    def same(self, state: State, *, ordered: bool) -> State:
        return state

    def crime(self, state: State) -> str:
        ignorant = sum(node.votes and n not in state.granted for n, node in enumerate(state.nodes))
        return "again" if state.used and ignorant >= self.majority else ""

    def steps(self, state: State) -> Iterator[tuple[Label, State]]:
        for n, node in enumerate(state.nodes):
            for after, step in self._told(n, node, state.seen).items():
                yield ("node {} is told {}", n, step), self._put(state, n, after)
        if not state.used:
            voting = [n for n, node in enumerate(state.nodes) if node.votes]
            for some in combinations(voting, self.majority):
                yield ("nodes {} grant", some), state._replace(granted=frozenset(some), used=True)
        for n, node in enumerate(state.nodes[:-1]):  # which of them keeps its memory makes no difference
            if node.life == 1 and (state.used or self._any_time):
                forgot = self._put(state, n, Node(node.life + 1))
                yield ("node {} loses its memory", n), forgot._replace(granted=state.granted - {n})

    @staticmethod
    def _put(state: State, n: int, node: Node) -> State:
        nodes = (*state.nodes[:n], node, *state.nodes[n + 1 :])
        seen = (*state.seen[:n], state.seen[n] | {node}, *state.seen[n + 1 :])
        return state._replace(nodes=nodes, seen=seen)

    def _after(self, n: int, node: Node, seen: tuple[frozenset[Node], ...]) -> dict[Node, Step]:
        """What a node may become, and by which request; a client may have read of each node whatever was
        ever to be seen.
        """
        if node.votes:
            return {}
        views = product(*[(None, *sorted(nodes)) for nodes in seen])
        steps = {step for view in views if (step := _sent(self._rule, view).get(n)) is not None}
        found = {told(node, step): step for step in steps if step.since == node.life}
        found.pop(node, None)
        return found


@cache
def _sent(rule: Rule, view: tuple[Node | None, ...]) -> dict[int, Step]:
    return rule([_state(n, node) for n, node in enumerate(view)])


def _state(n: int, node: Node | None) -> NodeState:
    place = f"node {n}"
    if node is None:
        return NodeState(place, False, "no answer", 0.0, "", None, 0, 0, False)
    word, since = ("voting", 0) if node.votes else ("quarantined", node.life)
    return NodeState(
        *(place, True, word, 0.0, place, None, 0, 0, False), since=since, ready=node.ready, begun=node.begun
    )


@cache
def told(node: Node, step: Step) -> Node:
    """The node afterwards; the shipped node is asked."""
    memory = NodeMemory(lambda: NOW)
    memory.quorum = {"run": memory.run}
    if node.votes:
        memory.quorum["vote"] = memory.run
    else:
        memory.quorum["since"] = node.life
    if node.ready:
        memory.quorum["ready"] = node.ready
    if node.begun:
        memory.quorum["begun"] = True
    memory.answer(step)
    q = memory.quorum
    return Node(node.life, q.get("ready", 0), q.get("begun", False), memory.votes)
