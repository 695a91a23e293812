"""A queue as one list of its nodes shows it. It is read once, and then tells each of many claims where it
stands. Pure.

Thousands of claims are judged by the same list. So whatever depends on the queue alone is computed once, when
somebody asks for it first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from interlock.backends.zookeeper.paths import ClaimNode, claim_nodes


class QueueView:
    """The claims in one folder, in their order.

    Of two views of a folder, the one with the higher number was asked for later.
    """

    def __init__(self, queue: list[ClaimNode], version: int = 0, number: int = 0) -> None:
        self.queue = queue
        self.version = version  # of the folder's data: see `bell`
        self.number = number
        self._places: dict[str, int] | None = None
        self._by_id: dict[str, list[ClaimNode]] | None = None
        self._lingering: list[int] | None = None
        self._totals: dict[int, list[int]] = {}  # by capacity: the permits up to each place
        self._in_the_way: dict[tuple[int, int], list[int]] = {}
        self._others: dict[int, int] = {}  # by capacity: the first place of a claim with another one

    @classmethod
    def of(cls, children: Iterable[str], version: int = 0, number: int = 0) -> QueueView:
        return cls(claim_nodes(children), version, number)

    def find(self, node: str) -> int | None:
        """The place of a node; None if it does not stand there."""
        found = self._places
        if found is None:
            found = self._places = {claim_node.node: index for index, claim_node in enumerate(self.queue)}
        return found.get(node)

    def of_claim(self, id: str) -> list[ClaimNode]:
        """The nodes of one claim: more than one if a request for it was repeated."""
        if self._by_id is None:
            found: dict[str, list[ClaimNode]] = {}
            for claim_node in self.queue:
                found.setdefault(claim_node.id, []).append(claim_node)
            self._by_id = found
        return self._by_id.get(id, [])

    def permits_ahead(self, place: int, capacity: int) -> int:
        return self._totals_of(capacity)[place - 1] if place else 0

    def _totals_of(self, capacity: int) -> list[int]:
        totals = self._totals.get(capacity)
        if totals is None:
            totals = list(accumulate(claim_node.permits_of(capacity) for claim_node in self.queue))
            self._totals[capacity] = totals
        return totals

    def to_watch(self, place: int, permits: int, capacity: int) -> range:
        """The places that a waiter must watch: the same as `admission.to_watch` says, without a walk along
        the queue.
        """
        nearest = self._nearest(permits, capacity)[place]
        if nearest >= 0:
            return range(nearest, nearest + 1)
        holders = bisect_right(self._totals_of(capacity), capacity)
        return range(holders) if place == holders else range(place - 1, place)

    def _nearest(self, permits: int, capacity: int) -> list[int]:
        """For each place the nearest one ahead that cannot share with a claim of so many permits; -1 if
        there is none.
        """
        found = self._in_the_way.get((permits, capacity))
        if found is None:
            nearest, found = -1, list[int]()
            for index, claim_node in enumerate(self.queue):
                found.append(nearest)
                if claim_node.permits_of(capacity) + permits > capacity:
                    nearest = index
            self._in_the_way[permits, capacity] = found
        return found

    def other_capacity(self, place: int, capacity: int) -> int | None:
        """The capacity that a claim ahead of this place has, if it is another one; a foreign node has no
        say.
        """
        first = self._others.get(capacity)
        if first is None:
            strange = (index for index, one in enumerate(self.queue) if one.capacity not in (0, capacity))
            first = self._others[capacity] = next(strange, len(self.queue))
        return self.queue[first].capacity if first < place else None

    def lingering(self, place: int) -> list[ClaimNode]:
        """Those ahead of this place that only keep it for the rest of a `min_hold`."""
        if self._lingering is None:
            self._lingering = [index for index, one in enumerate(self.queue) if one.lingering]
        return [self.queue[index] for index in self._lingering if index < place]

    def without(self, nodes: Iterable[str]) -> QueueView:
        gone = set(nodes)
        return QueueView(
            [claim_node for claim_node in self.queue if claim_node.node not in gone],
            self.version,
            self.number,
        )
