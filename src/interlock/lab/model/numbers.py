"""The model of tokens by ballot: what nodes accept, what attempts are granted, what nodes may lose.

Two attempts are watched. Everybody else, past, present and future, is one ENVIRONMENT that may raise the
number of any node to any higher value at any moment: that is all that others can do to the two, and both
crimes are crimes of two attempts, so "safe" holds for any number of clients, within the bounds on nodes and
numbers.

    repeated   two attempts are granted one token
    fallen     an attempt that began after a grant was complete is granted no higher token

No clock is trusted. A ballot is any number. A request is processed any time after it was sent, once, often
or never, and its answer may be lost. A lease may lapse at any moment, so a node that is asked never has a
reason to say busy.

What can only hide weaker behaviour is left out: an attempt begins when its first request is processed (later
is a harder demand) and is granted as soon as its deciding answer is on the way (earlier is a harder demand
on the other); attempts begin in their order; one that gives up is part of the environment. A claim that is
made again under the same id, after a refusal or a lapse, is a further round of the same attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from interlock.lab.model.search import Label
from interlock.lab.model.variants import Variant

NOBODY = UNREAD = -1
IDLE, ASKING, GRANTED = range(3)


class Node(NamedTuple):
    """One node, and what watched attempts know of it."""

    number: int = 0  # the last it accepted; 0: it has none, and its floor counts
    setter: int = NOBODY
    floor: int = 0
    votes: bool = True  # its marker is there, and its run id is the one in it
    heard: int = 0  # bit a: attempt a has its acceptance of the ballot in hand
    quarantine: int = 0  # bit a: attempt a was under way when the node lost its memory
    read: int = UNREAD  # a floor that somebody read for it from the others


class ConnectAttempt(NamedTuple):
    phase: int = IDLE
    ballot: int = 0  # once granted: the token
    rounds: int = 0  # how often it may still raise its ballot
    before: int = 0  # the highest token granted before it began


class State(NamedTuple):
    nodes: tuple[Node, ...]
    attempts: tuple[ConnectAttempt, ...]
    faults: int  # how many may still happen

    def put(self, n: int, node: Node) -> State:
        return self._replace(nodes=(*self.nodes[:n], node, *self.nodes[n + 1 :]))

    def turn(self, a: int, attempt: ConnectAttempt) -> State:
        return self._replace(attempts=(*self.attempts[:a], attempt, *self.attempts[a + 1 :]))


Steps = Iterator[tuple[Label, State]]


class Numbers:
    """A `Model` of `nodes` nodes whose numbers stay at or below `top`."""

    def __init__(self, variant: Variant, nodes: int = 3, top: int = 3) -> None:
        self.variant = variant
        self.size = nodes
        self.top = top
        self.majority = nodes // 2 + 1
        self._known: dict[tuple[Node, int], Node] = {}

    def first(self) -> State:
        attempt = ConnectAttempt(rounds=self.variant.rounds)
        return State((Node(),) * self.size, (attempt,) * self.variant.attempts, self.variant.faults)

    def crime(self, state: State) -> str:
        tokens = [one.ballot for one in state.attempts if one.phase == GRANTED]
        if len(set(tokens)) < len(tokens):
            return "repeated"
        if any(one.phase == GRANTED and one.ballot <= one.before for one in state.attempts):
            return "fallen"
        return ""

    def same(self, state: State, *, ordered: bool) -> State:
        alive = sum(1 << a for a, one in enumerate(state.attempts) if one.phase == ASKING)
        nodes = [self._plain(node, alive) for node in state.nodes]
        if not ordered:
            nodes.sort()
        attempts = [
            ConnectAttempt(GRANTED, one.ballot) if one.phase == GRANTED else one for one in state.attempts
        ]
        return State(tuple(nodes), tuple(attempts), state.faults)

    def seen(self, node: Node) -> int:
        """What a ballot has to exceed."""
        return self.variant.exceed(node.number, node.floor)

    def _plain(self, node: Node, alive: int) -> Node:
        """The node without what no attempt that is under way can still notice."""
        known = self._known.get((node, alive))
        if known is None:
            number, setter, floor, votes, heard, quarantine, read = node
            seen = self.seen(node)
            if (
                seen > number and self.variant.usual is None
            ):  # a usual vote sees the number, and not the floor
                number, setter = seen, NOBODY
            if seen == self.variant.exceed(number, 0):
                floor = 0
            if not any(alive >> a & 1 and setter == self._id(a) for a in range(self.variant.attempts)):
                setter = NOBODY  # nobody will ever be recognised by it
            known = Node(number, setter, floor, votes, heard & alive, quarantine & alive, read)
            self._known[node, alive] = known
        return known

    def steps(self, state: State) -> Steps:
        for a, attempt in enumerate(state.attempts):
            if attempt.phase == GRANTED:
                yield from self._filled(state, a)
            elif attempt.phase == ASKING:
                yield from self._voted(state, a)
                yield from self._raised(state, a)
            elif a == 0 or state.attempts[a - 1].phase != IDLE:
                yield from self._begun(state, a)
        for n, node in enumerate(state.nodes):
            if node.votes:
                if self.variant.others:
                    yield from self._others(state, n)
                yield from self._pruned(state, n)
                if state.faults:
                    yield from self._failed(state, n)
            elif self.variant.admit != "never":
                yield from self._readmitted(state, n)

    # ---- attempts ---------------------------------------------------------------

    def _id(self, a: int) -> int:
        return 0 if self.variant.ids == "client" else a

    def _begun(self, state: State, a: int) -> Steps:
        """It begins with the first of its requests that is processed."""
        attempt = state.attempts[a]
        before = max(one.ballot if one.phase == GRANTED else 0 for one in state.attempts)
        for ballot in range(1, self.top + 1):
            begun = attempt._replace(phase=ASKING, ballot=ballot, before=before)
            yield from self._voted(state.turn(a, begun), a)

    def _voted(self, state: State, a: int) -> Steps:
        """One node processes a request, for the first time or again; the answer arrives or is lost."""
        attempt = state.attempts[a]
        for n, node in enumerate(state.nodes):
            if not node.votes or node.heard >> a & 1:
                continue
            answer = self.variant.accept(self.seen(node), node.setter, attempt.ballot, self._id(a))
            if answer is None and self.variant.usual is not None:
                raised = self.variant.usual(node.number, node.floor, attempt.ballot)
                answer = None if raised is None else (raised, self._id(a))
            if answer is None:
                continue
            number, setter = answer
            after = node._replace(number=number, setter=setter)
            if after != node:
                yield (
                    ("node {} takes {} of attempt {}; nobody hears of it", n, number, a),
                    state.put(n, after),
                )
            heard = state.put(n, after._replace(heard=node.heard | 1 << a))
            token = number if self.variant.grant == "one number" else max(number, attempt.ballot)
            yield self._heard(heard, a, n, token)

    def _heard(self, state: State, a: int, n: int, token: int) -> tuple[Label, State]:
        attempt = state.attempts[a]._replace(ballot=token)
        if sum(node.heard >> a & 1 for node in state.nodes) < self.majority:
            return ("node {} tells attempt {} that it took {}", n, a, token), state.turn(a, attempt)
        granted = state.turn(a, attempt._replace(phase=GRANTED))
        return ("node {} tells attempt {} that it took {}: granted", n, a, token), granted

    def _raised(self, state: State, a: int) -> Steps:
        """Some node has seen as much or more: the same attempt asks all again for a higher number."""
        attempt = state.attempts[a]
        seen = max((self.seen(node) for node in state.nodes if node.votes), default=0)
        if not attempt.rounds or seen < attempt.ballot:
            return
        nodes = tuple(node._replace(heard=node.heard & ~(1 << a)) for node in state.nodes)
        for ballot in range(attempt.ballot + 1, self.top + 1):
            again = attempt._replace(ballot=ballot, rounds=attempt.rounds - 1)
            yield (
                ("attempt {} raises its ballot to {}", a, ballot),
                state._replace(nodes=nodes).turn(a, again),
            )

    def _filled(self, state: State, a: int) -> Steps:
        """A holder gives its claim, with its token, to a node that misses it."""
        token = state.attempts[a].ballot
        for n, node in enumerate(state.nodes):
            if not node.votes:
                continue
            if self.variant.fill_needs_majority and not self._believed(state, token):
                continue
            number = self.variant.fill(self.seen(node), token)
            if number != self.seen(node):
                filled = node._replace(
                    number=number, setter=NOBODY, floor=0
                )  # a granted attempt asks no more
                yield ("node {} is filled with {} of attempt {}", n, token, a), state.put(n, filled)

    def _believed(self, state: State, token: int) -> bool:
        """Whether a majority may still hold the claim: a later ballot there means that it is gone."""
        return sum(node.votes and self.seen(node) <= token for node in state.nodes) >= self.majority

    # ---- nodes --------------------------------------------------------------------

    def _others(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        for number in range(self.seen(node) + 1, self.top + 1):
            raised = node._replace(number=number, setter=NOBODY)
            yield ("node {} takes {} of somebody else", n, number), state.put(n, raised)

    def _pruned(self, state: State, n: int) -> Steps:
        """An idle resource leaves no number of its own; the node's floor remembers for all of them."""
        node = state.nodes[n]
        if node.number and self.variant.prune is not None:
            floor = self.variant.prune(node.number, node.floor)
            pruned = node._replace(number=0, setter=NOBODY, floor=floor)
            yield ("node {} prunes {}, its floor is {}", n, node.number, floor), state.put(n, pruned)

    def _failed(self, state: State, n: int) -> Steps:
        """It loses all its numbers, or the newest of them; with a marker it knows, and has no vote."""
        node, variant = state.nodes[n], self.variant
        without = sum(not other.votes for other in state.nodes)
        if not self.seen(node) or (variant.marker and without + 1 >= self.majority):
            return  # nothing to lose, or more than a minority: nothing is promised then
        under_way = sum(1 << a for a, one in enumerate(state.attempts) if one.phase == ASKING)
        read = node.read if variant.admit == "no compare" else UNREAD
        for number in [0] if variant.loses == "all" else range(self.seen(node)):
            failed = Node(number, NOBODY, 0, not variant.marker, node.heard, under_way, read)
            label = ("node {} restarts with {} instead of {}", n, number, self.seen(node))
            yield label, state.put(n, failed)._replace(faults=state.faults - 1)

    def _readmitted(self, state: State, n: int) -> Steps:
        """Somebody reads the others, and later gives the node its vote again."""
        node, variant = state.nodes[n], self.variant
        over = not node.quarantine or variant.admit == "any time"
        if over or variant.admit == "read early":
            others = [one for m, one in enumerate(state.nodes) if m != n and (one.votes or variant.asks_all)]
            for some in set(combinations(others, min(self.majority - variant.asks_fewer, len(others) + 1))):
                floor = max(self.seen(one) for one in some)
                if floor != node.read:
                    yield ("somebody reads {} for node {}", floor, n), state.put(n, node._replace(read=floor))
        if node.read != UNREAD and (over or variant.admit == "no compare"):
            number, floor = variant.admitted(node.number, node.read)
            read = node.read if variant.admit == "no compare" else UNREAD
            back = Node(number, NOBODY, floor, heard=node.heard, read=read)
            yield ("node {} has its vote again, its floor is {}", n, node.read), state.put(n, back)
