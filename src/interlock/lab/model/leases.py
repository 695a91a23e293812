"""The model of leases on a majority: who believes to hold, while nodes lose their memory and get their vote
back.

    shared     two believe at once

Clocks are honest here: a claim stands on a node at least as long as anybody believes in it who counts that
node. So time is left out; what is left of it is an order: a claim that is counted does not lapse before the
belief has ended, and a quarantine is over when no belief and no attempt counts what the node forgot. All
else may lapse at any moment, and every request may be late, lost or repeated. A renewal is one step: what
happens between its answers may as well happen after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from interlock.lab.model.search import Label

NOBODY = -1
IDLE, ASKING, BELIEVING, OVER = range(4)


class Node(NamedTuple):
    """One node; `counts` and `forgot` are what attempts count on there, bit a for attempt a."""

    holder: int = NOBODY
    entered: int = 0  # by which try of the holder, 0 or 1
    votes: bool = True
    counts: int = 0  # has its answer in hand, and relies on it
    forgot: int = 0  # ... but the node has lost its memory since


class State(NamedTuple):
    nodes: tuple[Node, ...]
    phases: tuple[int, ...]
    tries: tuple[int, ...]  # 1: it gave up once, let go everywhere, and asks again under the same id
    faults: int

    def put(self, n: int, node: Node) -> State:
        return self._replace(nodes=(*self.nodes[:n], node, *self.nodes[n + 1 :]))

    def turn(self, a: int, phase: int) -> State:
        return self._replace(phases=(*self.phases[:a], phase, *self.phases[a + 1 :]))


@dataclass(frozen=True, slots=True)
class Custom:
    """How leases are kept, and what is to be found."""

    name: str
    text: str
    guilty: bool = False
    fewer: int = 0  # a grant needs so many nodes less than a majority
    marker: bool = True
    quarantine: bool = True
    faults: int = 1
    renews: Literal["majority", "any answer"] = "majority"
    leftovers: bool = (
        False  # a renewal counts what an earlier try entered, and whose release may be on its way
    )
    upsert: bool = False  # a renewal enters the claim where it is missing, and counts it
    fills: Literal["while a majority holds", "whenever"] = "while a majority holds"
    compares: bool = True  # a release removes its own claim only
    upto: bool = True  # ... and the release of a try that failed none that a later try entered
    attempts: int = 2
    nodes: int = 3
    deep: int = 5


CUSTOMS = [
    Custom("leases", "what is shipped", attempts=3),
    Custom("leases, twice", "... and memory is lost twice", faults=2),
    Custom(
        "fills whenever", "a fill that asks for no majority: no harm to exclusion", fills="whenever", faults=2
    ),
    Custom(
        "renewal enters",
        "a renewal that enters where it is missing: no harm while clocks are honest",
        upsert=True,
    ),
    Custom("less than a majority", "two minorities grant", True, fewer=1, faults=0),
    Custom("leases, no marker", "a node forgets a claim and grants the next", True, marker=False),
    Custom(
        "leases, no quarantine",
        "a node forgets and votes before the belief has ended",
        True,
        quarantine=False,
    ),
    Custom(
        "renewed by any answer", "a renewal that a minority answered", True, renews="any answer", faults=0
    ),
    Custom(
        "leftovers renewed", "a renewal counts what a late release will end", True, leftovers=True, faults=0
    ),
    Custom("release of an earlier try", "a late release ends what came after", True, upto=False, faults=0),
    Custom(
        "release of anybody", "a release does not compare the id", True, compares=False, faults=0, attempts=3
    ),
]

Steps = Iterator[tuple[Label, State]]


class Leases:
    """A `Model` of two or three attempts on one lock."""

    def __init__(self, custom: Custom, nodes: int = 3) -> None:
        self.custom = custom
        self.size = nodes
        self.majority = nodes // 2 + 1

    def first(self) -> State:
        return State(
            (Node(),) * self.size,
            (IDLE,) * self.custom.attempts,
            (0,) * self.custom.attempts,
            self.custom.faults,
        )

    def crime(self, state: State) -> str:
        return "shared" if state.phases.count(BELIEVING) > 1 else ""

    def same(self, state: State, *, ordered: bool) -> State:
        live = sum(1 << a for a, phase in enumerate(state.phases) if phase in (ASKING, BELIEVING))
        nodes = [self._plain(node, live) for node in state.nodes]
        return state._replace(nodes=tuple(nodes if ordered else sorted(nodes)))

    @staticmethod
    def _plain(node: Node, live: int) -> Node:
        counts = node.counts & live
        if counts == node.counts and node.forgot & counts == node.forgot:
            return node
        return node._replace(counts=counts, forgot=node.forgot & counts)

    def steps(self, state: State) -> Steps:
        for a, phase in enumerate(state.phases):
            if phase == IDLE and (a == 0 or state.phases[a - 1] != IDLE):
                yield from self._claimed(state.turn(a, ASKING), a)
            elif phase == ASKING:
                yield from self._claimed(state, a)
            elif phase == BELIEVING:
                yield from self._renewed(state, a)
            if phase in (ASKING, BELIEVING):
                yield ("attempt {} gives up or lets go", a), state.turn(a, OVER)
            if phase == ASKING and not state.tries[a]:
                yield self._again(state, a)
            if phase in (BELIEVING, OVER):
                yield from self._filled(state, a)
            if phase == OVER or state.tries[a]:
                yield from self._released(state, a)
        for n, node in enumerate(state.nodes):
            yield from self._lapsed(state, n)
            if node.votes and state.faults:
                yield from self._failed(state, n)
            elif not node.votes and (not node.forgot or not self.custom.quarantine):
                yield ("node {} has its vote again", n), state.put(n, node._replace(votes=True))

    def _open(self, state: State, fit: Callable[[Node], bool]) -> Iterator[tuple[int, Node]]:
        return ((n, node) for n, node in enumerate(state.nodes) if node.votes and fit(node))

    # ---- attempts ---------------------------------------------------------------

    def _claimed(self, state: State, a: int) -> Steps:
        for n, node in self._open(state, lambda node: node.holder in (NOBODY, a)):
            taken = node._replace(holder=a, entered=state.tries[a])
            if taken != node:
                yield ("node {} takes attempt {}; nobody hears of it", n, a), state.put(n, taken)
            heard = state.put(n, _counted(taken, a))
            if sum(one.counts >> a & 1 for one in heard.nodes) >= self.majority - self.custom.fewer:
                yield ("node {} takes attempt {}, which is granted", n, a), heard.turn(a, BELIEVING)
            else:
                yield ("node {} takes attempt {}, which hears it", n, a), heard

    def _again(self, state: State, a: int) -> tuple[Label, State]:
        """It was refused: its claim is released everywhere, sooner or later, and made again."""
        tries = tuple(1 if b == a else one for b, one in enumerate(state.tries))
        nodes = tuple(_uncounted(node, a) for node in state.nodes)
        return ("attempt {} lets go everywhere and tries again", a), state._replace(nodes=nodes, tries=tries)

    def _renewed(self, state: State, a: int) -> Steps:
        """Those that answer are the ones it counts on from now on."""
        tries = (0, 1) if self.custom.leftovers else (state.tries[a],)
        able = [
            n
            for n, node in self._open(state, lambda node: node.holder in (NOBODY, a))
            if (node.entered in tries if node.holder == a else self.custom.upsert)
        ]
        least = self.majority if self.custom.renews == "majority" else 1
        for many in range(least, len(able) + 1):
            for some in combinations(able, many):
                nodes = tuple(
                    _counted(self._held(node, a, state), a) if n in some else _uncounted(node, a)
                    for n, node in enumerate(state.nodes)
                )
                yield ("nodes {} renew attempt {}", some, a), state._replace(nodes=nodes)

    def _held(self, node: Node, a: int, state: State) -> Node:
        return node if node.holder == a else node._replace(holder=a, entered=state.tries[a])

    def _filled(self, state: State, a: int) -> Steps:
        """Also late: the request is on its way when the belief ends. It never counts before it is renewed."""
        held = sum(1 for _ in self._open(state, lambda node: node.holder == a))
        if held >= self.majority or self.custom.fills == "whenever":
            for n, node in self._open(state, lambda node: node.holder in (NOBODY, a)):
                filled = node._replace(holder=a, entered=state.tries[a])
                yield ("node {} is filled with attempt {}", n, a), state.put(n, filled)

    def _released(self, state: State, a: int) -> Steps:
        """Late or not: of the whole attempt when it is over, before that of its first try."""
        holders = (a,) if self.custom.compares else (0, 1, 2)
        whole = state.phases[a] == OVER or not self.custom.upto
        for n, node in enumerate(state.nodes):
            if node.holder in holders and (whole or not node.entered):
                label = ("node {} processes a release of attempt {}", n, a)
                yield label, state.put(n, node._replace(holder=NOBODY, entered=0))

    # ---- nodes --------------------------------------------------------------------

    def _lapsed(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        a = node.holder
        if a != NOBODY and not (node.counts >> a & 1 and state.phases[a] in (ASKING, BELIEVING)):
            yield (
                ("attempt {} lapses on node {}", a, n),
                state.put(n, node._replace(holder=NOBODY, entered=0)),
            )

    def _failed(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        without = sum(not other.votes for other in state.nodes)
        if self.custom.marker and without + 1 >= self.majority:
            return  # more than a minority: nothing is promised then
        failed = Node(votes=not self.custom.marker, counts=node.counts, forgot=node.counts)
        yield ("node {} loses its memory", n), state.put(n, failed)._replace(faults=state.faults - 1)


def _counted(node: Node, a: int) -> Node:
    return node._replace(counts=node.counts | 1 << a, forgot=node.forgot & ~(1 << a))


def _uncounted(node: Node, a: int) -> Node:
    return node._replace(counts=node.counts & ~(1 << a), forgot=node.forgot & ~(1 << a))
