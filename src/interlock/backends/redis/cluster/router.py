"""The leaf of a Cluster: each request goes to the node that has its slot, wherever that is by now.

A node that refuses because the slot is elsewhere, is being moved, or because the Cluster is down, has done nothing:
that is asked again, there, until the time is up; so is what was never sent. A node that does not answer is asked again
only where that is harmless, and only after others were asked who has the slot now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlock import native
from interlock.backends.redis.address import Route
from interlock.backends.redis.cluster.slots import Place, place_in, slot_of
from interlock.backends.redis.cluster.topology import Cluster, Member
from interlock.backends.redis.errors import since
from interlock.backends.redis.transport.handshake import Dialling
from interlock.backends.redis.transport.interface import Leaf, Pausing
from interlock.backends.redis.wire.resp import Failure, command
from interlock.errors import ClientClosed, StoreUnavailable, Unreached

ATTEMPT = 1.5  # seconds after which a silent node is not waited for: another may have its slots by now
ROUNDS = (
    1.0  # seconds for which requests that are sent together are repeated: the others must not wait for them
)
PAUSE, LONGEST_PAUSE = 0.01, 0.1  # seconds between attempts: growing
LEAST = 0.02  # seconds for another attempt: in less, all it finds out is that nobody answered in time
BRIEFLY = (
    0.5  # seconds for which a release is repeated: the keeper goes on with it, and its caller need not wait
)
DOWN = ("CLUSTERDOWN", "READONLY", "MASTERDOWN")
ASKING = command(b"ASKING")


class Shards:
    """Requests find their node by the key they name; one leaf a node.

    `hurried` is for the keeper: there, finding and connecting to a node is a part of the time that a request has.
    """

    def __init__(
        self,
        way: Cluster,
        make: Callable[[Route], Leaf],
        pausing: Pausing,
        dial: Dialling,
        *,
        hurried: bool = False,
    ) -> None:
        self.way = way
        self._hurried = hurried
        self._make = make
        self._pausing = pausing
        self._dial = dial
        self._guard = native.guard()
        self._leaves: dict[Place, Leaf] = {}
        self._troubles: dict[Place, float] = {}  # nodes that did not answer, and when
        self._pruned: object = None  # the map after which leaves of nodes that left were closed
        self._closed = False

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        """The reply of the node that has the slot; its refusal, if it still refuses when the time is up."""
        until, slot, known = self._pausing.now() + timeout, slot_of(request), self.way.map
        met: StoreUnavailable | None = None
        if known is not None and (place := known.place(slot)) is not None:
            leaf = self._leaves.get(place)
            if leaf is not None and place not in self.way.suspects:  # the usual way: nothing is in doubt
                failure = None
                try:
                    reply = await leaf.ask(request, min(ATTEMPT, timeout), replies, again)
                except (StoreUnavailable, ClientClosed) as error:
                    failure = self._trouble(error, place, again)
                else:
                    if not refused(reply[0] if replies > 1 else reply):
                        if self._has(slot, place):
                            return reply
                        failure = self._trouble(_moved_on(self.way.place), place, again)
                if failure is not None and self._pausing.now() >= until:
                    raise failure
                met = failure
        return await self._ask_around(request, slot, until, replies, again, met)

    async def _ask_around(
        self, request: bytes, slot: int, until: float, replies: int, again: bool, met: StoreUnavailable | None
    ) -> Any:
        """The same, wherever that leads; what a node has refused last is better told than that nobody answers now."""
        now, aside, pause, told = self._pausing.now, None, 0.0, None
        end = until if again else min(until, now() + BRIEFLY)
        patient = again and not self._hurried
        while True:
            place, failure = None, None
            try:
                if aside is None and patient:
                    began = now()
                    place = await self._place(slot, max(until - began, self.way.connect_timeout))
                    # To find the node is a part of connecting, which has its own time.
                    until, end = until + now() - began, end + now() - began
                else:
                    place = aside or await self._place(slot, max(0.001, until - now()))
                left = max(0.001, until - now())
                reply = await self.ask_at(place, request, left, replies, again, asking=aside is not None)
            except (StoreUnavailable, ClientClosed) as error:
                failure, aside = since(met, self._trouble(error, place, again)), None
            else:
                first = reply[0] if replies > 1 else reply
                code = refused(first)
                if not code and (aside is not None or self._has(slot, place)):
                    return reply
                if code:
                    told = None if code == "MOVED" else reply
                else:
                    failure = self._trouble(_moved_on(self.way.place), place, again)
                aside = self._redirected(code, first, place)
            met = failure or met
            if now() + pause + LEAST >= end:
                if told is not None:
                    return told
                raise failure or _moved_on(self.way.place)
            if aside is None:
                pause = await self._paused(pause)

    async def _paused(self, pause: float) -> float:
        """Not at all the first time: most troubles are over with one question. Returns the pause after this."""
        if pause:
            await self._pausing.wait(self._pausing.signal(), pause)
        return min(LONGEST_PAUSE, max(PAUSE, 2 * pause))

    def _has(self, slot: int, place: Place) -> bool:
        """Whether a node still counts: what one answers that has lost its slots meanwhile is worth nothing."""
        known = self.way.map
        return known is None or known.place(slot) == place

    def _trouble(self, error: Exception, place: Place | None, again: bool) -> StoreUnavailable:
        """What to raise when there is no time to ask again; raises it where asking again may do harm."""
        if self._closed:
            raise error
        if isinstance(error, ClientClosed):  # its node has left the Cluster: it was not sent
            return _moved_on(self.way.place)
        assert isinstance(error, StoreUnavailable)
        if place is not None:
            self.way.suspect(place)
            if not again and not isinstance(error, Unreached):
                raise error
        return error

    def _redirected(self, code: str, failure: Any, place: Place) -> Place | None:
        """Remember what a refusal says; the node to ask once, aside, if it says so."""
        if code == "ASK":
            return place_in(failure.text, place, self.way.remap)
        if code == "MOVED":
            self.way.suspect(place, place_in(failure.text, place, self.way.remap))
        elif code in DOWN:
            self.way.suspect(place)
        return None

    async def _place(self, slot: int, timeout: float) -> Place:
        """Where the slot's master is; found out anew if that is not known, or in doubt."""
        known = self.way.map
        place = None if known is None else known.place(slot)
        if place is None or place in self.way.suspects:
            await self.way.look(self._dial, self._pausing, place, timeout)
            known = self.way.map
            place = None if known is None else known.place(slot)
        if known is not self._pruned:
            await self._prune(set(() if known is None else known.places))
            self._pruned = known
        if place is None:
            raise StoreUnavailable(
                f"{self.way.place}: nobody tells who has slot {slot}; see CLUSTER INFO and CLUSTER NODES"
            )
        return place

    async def masters(self, timeout: float) -> list[Place]:
        """All nodes that have slots, asked for anew."""
        await self.way.look(self._dial, self._pausing, None, timeout)
        known = self.way.map
        return [] if known is None else [master.place for master in known.masters]

    async def replicas(self, request: bytes, timeout: float) -> int:
        """How many replicas the shard has that a request is for."""
        slot = slot_of(request)
        await self._place(slot, timeout)
        known = self.way.map
        owner = None if known is None else known.owners[slot]
        return 0 if owner is None else owner.replicas

    async def ask_at(
        self,
        place: Place,
        request: bytes,
        timeout: float,
        replies: int = 1,
        again: bool = True,
        asking: bool = False,
    ) -> Any:
        """The reply of one node, whatever it is."""
        leaf = self._leaves.get(place)
        if leaf is None:
            leaf = self._opened(place)
        timeout = min(timeout, ATTEMPT)
        if not asking:
            return await leaf.ask(request, timeout, replies, again)
        _, *answers = await leaf.ask(ASKING + request, timeout, replies + 1, again)
        return answers[0] if replies == 1 else answers

    # ---- many at once -------------------------------------------------------------

    async def ask_all(self, requests: Sequence[tuple[bytes, bytes]], timeout: float) -> list[Any]:
        """The reply to each, or the error that stands for it; sent together to each node.

        A request comes twice, by the hash of its script and with the source. Those for a node in trouble are sent
        last, and given up first: the others must not wait for them.
        """
        now = self._pausing.now
        until, pause = now() + timeout, 0.0
        rounds_until = min(until, now() + ROUNDS)
        answers: list[Any] = [None] * len(requests)
        unanswered = {number: quick for number, (quick, _) in enumerate(requests)}
        while True:
            await self._round(unanswered, answers, until)
            for number in list(unanswered):
                answer = answers[number]
                if isinstance(answer, Failure) and answer.code == "NOSCRIPT":
                    unanswered[number] = requests[number][1]
                elif not isinstance(answer, StoreUnavailable) and refused(answer) not in DOWN:
                    del unanswered[number]
            if not unanswered or now() + pause >= rounds_until:
                return answers
            pause = await self._paused(pause)

    async def _round(self, asked: dict[int, bytes], answers: list[Any], until: float) -> None:
        """Send each node what is for it, and take the replies; nodes in trouble come last."""
        now, places = self._pausing.now, dict[Place, list[int]]()
        for number, request in asked.items():
            try:
                place = await self._place(slot_of(request), max(0.001, until - now()))
                places.setdefault(place, []).append(number)
            except StoreUnavailable as error:
                answers[number] = error
        for left, place in zip(range(len(places), 0, -1), sorted(places, key=self._troubled), strict=True):
            numbers, share = places[place], max(0.001, (until - now()) / left)
            request = b"".join([asked[number] for number in numbers])
            try:
                # Not again from there: connecting must not take the others' time, and the next round comes soon.
                replies = await self.ask_at(place, request, share, len(numbers), again=False)
            except (StoreUnavailable, ClientClosed) as error:
                self._troubles[place] = now()
                replies = [self._trouble(error, place, True)] * len(numbers)
            else:
                self._troubles.pop(place, None)
                replies = [replies] if len(numbers) == 1 else replies
            for number, reply in zip(numbers, replies, strict=True):
                if code := refused(reply):
                    self._redirected(code, reply, place)
                answers[number] = _moved_on(self.way.place) if code == "MOVED" else reply

    def _troubled(self, place: Place) -> float:
        return self._troubles.get(place, 0.0)

    # ---- leaves -------------------------------------------------------------------

    def _opened(self, place: Place) -> Leaf:
        with self._guard:
            if self._closed:
                raise ClientClosed("this client was closed")
            leaf = self._leaves.get(place)
            if leaf is None:
                leaf = self._leaves[place] = self._make(self.way.member(place))
            return leaf

    async def _prune(self, known: set[Place]) -> None:
        with self._guard:
            gone = [self._leaves.pop(place) for place in list(self._leaves) if place not in known]
        for leaf in gone:
            await leaf.close()

    async def warm(self, route: Route, timeout: float) -> None:
        assert isinstance(route, Member)
        leaf = self._leaves.get(route.at)
        await (self._opened(route.at) if leaf is None else leaf).warm(route, timeout)

    def inside(self) -> bool:
        owned = self._guard._is_owned() or self.way.inside()
        return owned or any(leaf.inside() for leaf in list(self._leaves.values()))

    def after_fork(self) -> None:
        self._guard = native.guard()
        self.way.after_fork()
        for leaf in self._leaves.values():
            leaf.after_fork()

    async def close(self) -> None:
        with self._guard:
            self._closed = True
            leaves = list(self._leaves.values())
        for leaf in leaves:
            await leaf.close()


def refused(reply: Any) -> str:
    """The code of a reply that says that the slot cannot be had here, and nothing was done; empty for any other."""
    if not isinstance(reply, Failure):
        return ""
    if reply.code in ("MOVED", "ASK", "TRYAGAIN"):
        return reply.code
    return next((word for word in DOWN if word in reply.text), "")  # Redis 6 wraps the errors of scripts


def _moved_on(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"{place}: another node has just taken this slot over; try again in a moment")
