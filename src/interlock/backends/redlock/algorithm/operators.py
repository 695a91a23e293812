"""Merges what the nodes show into one view: a claim on a majority is a holder, a leftover on fewer nodes is
not.

While nodes are away, a held lock may be seen on too few of them to tell it from a leftover, and is then shown
as free. A lock that is shown as held is held. The view grants nothing: a claim asks for votes, not for this
view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interlock._support.record import record, replaced
from interlock.backends.redis.errors import timeout_error, unexpected_answer
from interlock.backends.redis.scan import Cursors
from interlock.backends.redlock.quorum import QUARANTINED, Quorum
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import NO_VOTE, Evict, Inspect, Reply, Scan
from interlock.errors import ForeignKey, InterlockError
from interlock.model import NEVER, Queue, Standing

FOREIGN = "another program"  # the holder of a lock that interlock did not write
MAX_LEFTOVERS = 4  # claims of failed attempts that may stand on a node for a moment
KEPT_S = 2.0  # seconds for which further pages of names come from the same scan


@record
class NodeView:
    """One resource on one node."""

    label: str
    state: str  # granted (somebody holds it there), free, no answer, quarantined, or what is wrong
    standings: tuple[Standing, ...]


async def inspect(quorum: Quorum, resource: str, timeout: float, limit: int | None = None) -> Queue:
    # Ask for a few more than are wanted: on some nodes leftovers may stand in front.
    seen, said = await _seen(quorum, resource, timeout, None if limit is None else limit + MAX_LEFTOVERS)
    if len(seen) < quorum.members.majority:
        raise quorum.too_few(f"{resource}: an inspection", said)
    found = merged([standings for _, standings in seen.values()], quorum.members.majority)
    ids = {standing.id for standing in found}
    capacities = [
        capacity for capacity, standings in seen.values() if any(one.id in ids for one in standings)
    ]
    return Queue(resource, max(capacities, default=0), tuple(found[:limit]))


async def _seen(
    quorum: Quorum, resource: str, timeout: float, limit: int | None = None
) -> tuple[dict[int, tuple[int, tuple[Standing, ...]]], dict[int, str | InterlockError]]:
    """Two dictionaries by node: capacity and standings from voting nodes, and what each node said."""
    seen: dict[int, tuple[int, tuple[Standing, ...]]] = {}
    said: dict[int, str | InterlockError] = {}

    def on_reply(node: int, reply: Reply, sent: float, received: float) -> bool:
        if isinstance(reply, InterlockError):
            said[node] = reply
        elif reply[1] == NO_VOTE:
            quorum.members.mark_non_voting(node)
            said[node] = QUARANTINED
        else:
            seen[node] = (reply[2], reply[3])
            said[node] = "answered"
        return False

    until, request = quorum.now() + timeout, Inspect(resource, limit)
    await quorum.ask(request, on_reply, quorum.once_connected(timeout))
    if len(seen) < quorum.members.majority and QUARANTINED in said.values():
        if await quorum.recovery.run_now(until - quorum.now()):
            await quorum.ask(request, on_reply, quorum.once_connected(max(0.001, until - quorum.now())))
    return seen, said


def merged(views: Sequence[Sequence[Standing]], majority: int) -> list[Standing]:
    """The claims that stand on a majority under one token; each lapses when fewer than a majority hold it."""
    alike: dict[tuple[str, int], list[Standing]] = {}
    for standings in views:
        for standing in standings:
            # A claim without a token is an attempt between two rounds; a lock of another program never has
            # one.
            if standing.admitted and (standing.token or standing.who == FOREIGN):
                alike.setdefault((standing.id, standing.token), []).append(standing)
    found: list[Standing] = []
    for copies in alike.values():
        if len(copies) >= majority:
            copies.sort(key=lambda standing: -standing.lapses_in)
            permits = min(standing.permits for standing in copies)
            found.append(replaced(copies[majority - 1], permits=permits))
    return sorted(found, key=lambda standing: standing.token)


async def view(quorum: Quorum, resource: str, timeout: float) -> list[NodeView]:
    """One resource as each node sees it.

    Changes nothing: an inspection must not admit a node or begin its quarantine.
    """
    members = quorum.members
    found = [NodeView(label, "no answer", ()) for label in members.labels]

    def on_reply(node: int, reply: Reply, sent: float, received: float) -> bool:
        label = members.labels[node]
        if isinstance(reply, InterlockError):
            found[node] = NodeView(label, str(reply), ())
        elif reply[1] == NO_VOTE:
            found[node] = NodeView(label, "quarantined", ())
        else:
            found[node] = NodeView(label, "granted" if reply[3] else "free", reply[3])
        return False

    timeouts = Timeouts(min(timeout, quorum.longest), timeout, 0)
    await quorum.transport.ask(Inspect(resource), members.everyone, members.everyone, on_reply, timeouts)
    return found


async def evict(quorum: Quorum, request: Evict, timeout: float) -> list[Standing]:
    """Evict, and return the claims that stood on a majority; leftovers on fewer nodes are removed too.

    A node does not touch another program's key unless the request allows it. If so many nodes have such a key
    that no majority is left to evict from, `ForeignKey` is raised; the nodes are inspected first, so that
    nothing is removed then.
    """
    members, until = quorum.members, quorum.now() + timeout
    if request.id is None:
        await _spare_foreign(quorum, request, timeout)
    removed: list[tuple[Standing, ...]] = []
    foreign: list[ForeignKey] = []
    said: dict[int, str | InterlockError] = {}

    def on_reply(node: int, reply: Reply, sent: float, received: float) -> bool:
        if isinstance(reply, InterlockError):
            said[node] = reply
            if isinstance(reply, ForeignKey):
                foreign.append(reply)
        else:
            said[node] = "done"
            removed.append(reply[2])
        return False

    await quorum.ask(request, on_reply, quorum.once_connected(max(0.001, until - quorum.now())))
    if len(removed) < members.majority:
        if len(removed) + len(foreign) >= members.majority:
            raise foreign[0]
        raise quorum.too_few(f"{request.resource}: an eviction", said)
    return merged(removed, members.majority)


async def _spare_foreign(quorum: Quorum, request: Evict, timeout: float) -> None:
    members = quorum.members
    seen, _ = await _seen(quorum, request.resource, timeout)
    spared = [
        standing
        for _, standings in seen.values()
        for standing in standings
        if standing.foreign and not (request.foreign and (request.no_expiry or standing.lapses_in < NEVER))
    ]
    if len(spared) > members.size - members.majority:
        expires = all(standing.lapses_in < NEVER for standing in spared)
        raise ForeignKey(request.resource, "string", expires)


class ResourceListing:
    """Lists the resources that stand on a majority.

    All nodes begin their scans at once, so nodes that hang cost the time of one round together; then the
    scans go on one by one. A list of many keys takes as long as it takes, for as long as its nodes answer
    each step.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._walk: tuple[str, float, list[str]] = ("", 0.0, [])

    async def beyond(self, quorum: Quorum, prefix: str, after: str, timeout: float) -> list[str]:
        walked, when, names = self._walk
        if not after or walked != prefix or self._now() - when > KEPT_S:
            names = await self._all(quorum, prefix, timeout)
            self._walk = (prefix, self._now(), names)
        return [name for name in names if name > after]

    async def _all(self, quorum: Quorum, prefix: str, timeout: float) -> list[str]:
        majority = quorum.members.majority
        first: dict[int, Reply] = {}

        def on_reply(node: int, reply: Reply, sent: float, received: float) -> bool:
            first[node] = reply
            return False

        await quorum.ask(Scan(prefix, ""), on_reply, quorum.once_connected(timeout))
        counts: dict[str, int] = {}
        said: dict[int, str | InterlockError] = {}
        listed, pending = 0, len(first)
        for node, reply in first.items():
            if listed + pending < majority:
                break  # the nodes that are left could only cost more time
            pending -= 1
            try:
                found = await self._of(quorum, node, prefix, reply)
            except InterlockError as error:
                said[node] = error
                continue
            listed += 1
            said[node] = "listed"
            for name in found:
                counts[name] = counts.get(name, 0) + 1
        if listed < majority:
            raise quorum.too_few("a list of names", said)
        return sorted(name for name, count in counts.items() if count >= majority)

    async def _of(self, quorum: Quorum, node: int, prefix: str, reply: Reply) -> set[str]:
        """The names on one node, whose scan began with this reply."""
        label, step = quorum.members.labels[node], Timeouts(quorum.longest, quorum.longest, 1)
        names: set[str] = set()
        cursors = Cursors()
        while True:
            if isinstance(reply, InterlockError):
                raise reply
            cursor = reply[1]
            names.update(reply[2])
            if not cursor:
                return names
            try:
                cursors.follow(cursor)
            except ValueError as error:
                raise unexpected_answer(label, error) from None
            got: list[Reply] = [timeout_error(label, quorum.longest)]

            def on_reply(_: int, reply: Reply, sent: float, received: float, got: list[Reply] = got) -> bool:
                got[0] = reply
                return True

            await quorum.ask(Scan(prefix, cursor), on_reply, step, (node,))
            reply = got[0]
