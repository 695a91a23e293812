"""The transport of a Cluster: sends each request to the node that has its slot by now.

A node that refuses because the slot is elsewhere, is being moved, or because the Cluster is down, has done
nothing. Such a request is repeated at the right node until its time is up, and so is a request that was never
sent. A request that was not answered is repeated only if that is harmless, and only after the map was
refreshed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from interlock._support import native
from interlock._support.record import record
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Route
from interlock.backends.redis.cluster.slots import HostPort, redirected_to, slot_of
from interlock.backends.redis.cluster.topology import NodeRoute, Topology
from interlock.backends.redis.errors import merged_error
from interlock.backends.redis.transport.handshake import Handshake
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.wire.resp import ErrorReply, command
from interlock.errors import ClientClosed, StoreUnavailable, Unreached

ATTEMPT_S = 1.5  # seconds after which a silent node is given up: another may have its slots by now
# Seconds for which requests of a batch are repeated: the other requests of the batch must not wait for them.
ROUNDS_S = 1.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.01, 0.1  # seconds between attempts; the pauses grow
MIN_ATTEMPT_S = 0.02  # seconds that another attempt needs: with less it could only time out
# Seconds for which a release is repeated: after that the keeper goes on with it, and its caller need not
# wait.
BRIEF_PART = 0.5
DOWN = ("CLUSTERDOWN", "READONLY", "MASTERDOWN")
ASKING = command(b"ASKING")

Confirm = Callable[[bytes, float], Awaitable[tuple[int, bytes]]]
"""For the shard of a request: how many replicas must confirm, and the command that waits for them within
the seconds given.
"""


@record
class Unconfirmed:
    """The reply to a request whose write fewer replicas have than wanted."""

    reply: Any
    confirmed: int
    wanted: int


class ClusterRouter:
    """Routes requests by their first key, with one transport for each node.

    A router `for_keeper` is the keeper's own: there, finding and connecting to a node counts against the
    request's own timeout.
    """

    def __init__(
        self,
        topology: Topology,
        make: Callable[[Route], Transport],
        runtime: WaitRuntime,
        handshake: Handshake,
        *,
        for_keeper: bool = False,
    ) -> None:
        self.topology = topology
        self._for_keeper = for_keeper
        self._make = make
        self._runtime = runtime
        self._handshake = handshake
        self._mutex = native.mutex()
        self._transports: dict[HostPort, Transport] = {}
        self._troubles: dict[HostPort, float] = {}  # when nodes last failed to answer
        self._pruned: object = None  # the map for which transports of departed nodes were closed
        self._closed = False

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        """The reply of the node that has the slot; its error reply, if it still refuses when the time is
        up.
        """
        until, slot, known = self._runtime.now() + timeout, slot_of(request), self.topology.map
        met: StoreUnavailable | None = None
        if known is not None and (node := known.node(slot)) is not None:
            transport = self._transports.get(node)
            # The usual case: nothing is in doubt.
            if transport is not None and node not in self.topology.suspects:
                failure = None
                try:
                    reply = await transport.ask(request, min(ATTEMPT_S, timeout), replies, again)
                except (StoreUnavailable, ClientClosed) as error:
                    failure = self._trouble(error, node, again)
                else:
                    if not refused(reply[0] if replies > 1 else reply):
                        if self._has(slot, node):
                            return reply
                        failure = self._trouble(_moved_on(self.topology.label), node, again)
                if failure is not None and self._runtime.now() >= until:
                    raise failure
                met = failure
        return await self._ask_around(request, slot, until, replies, again, met)

    async def _ask_around(
        self, request: bytes, slot: int, until: float, replies: int, again: bool, met: StoreUnavailable | None
    ) -> Any:
        """The same, following redirections.

        At the end the last error reply of a node is preferred over a timeout.
        """
        now, aside, pause, told = self._runtime.now, None, 0.0, None
        end = until if again else min(until, now() + BRIEF_PART)
        connecting_is_extra, pace = again and not self._for_keeper, self.topology.pace
        while True:
            node, failure = None, None
            try:
                if aside is None and connecting_is_extra:
                    # Finding the node is part of connecting.
                    began = now()
                    counts = pace.counts(until - began)
                    node = await self._node(slot, pace.within(until - began))
                    if not counts:
                        until, end = until + now() - began, end + now() - began
                else:
                    node = aside or await self._node(slot, max(0.001, until - now()))
                left = max(0.001, until - now())
                reply = await self.ask_at(node, request, left, replies, again, asking=aside is not None)
            except (StoreUnavailable, ClientClosed) as error:
                failure, aside = merged_error(met, self._trouble(error, node, again)), None
            else:
                first = reply[0] if replies > 1 else reply
                code = refused(first)
                if not code and (aside is not None or self._has(slot, node)):
                    return reply
                if code:
                    told = None if code == "MOVED" else reply
                else:
                    failure = self._trouble(_moved_on(self.topology.label), node, again)
                aside = self._redirected(code, first, node)
            met = failure or met
            if now() + pause + MIN_ATTEMPT_S >= end:
                if told is not None:
                    return told
                raise failure or _moved_on(self.topology.label)
            if aside is None:
                pause = await self._paused(pause)

    async def _paused(self, pause: float) -> float:
        """Pause, though not the first time, since most trouble ends with one refresh.

        Returns the next pause.
        """
        if pause:
            await self._runtime.wait(self._runtime.signal(), pause)
        return min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * pause))

    def _has(self, slot: int, node: HostPort) -> bool:
        """Whether a node still has the slot: a reply is worthless if the node has lost its slots
        meanwhile.
        """
        known = self.topology.map
        return known is None or known.node(slot) == node

    def _trouble(self, error: Exception, node: HostPort | None, again: bool) -> StoreUnavailable:
        """The error to raise if there is no time to repeat the request; raises it at once if repeating may
        do harm.
        """
        if self._closed:
            raise error
        if isinstance(error, ClientClosed):  # the node has left the Cluster, so the request was not sent
            return _moved_on(self.topology.label)
        assert isinstance(error, StoreUnavailable)
        if node is not None:
            self.topology.suspect(node)
            if not again and not isinstance(error, Unreached):
                raise error
        return error

    def _redirected(self, code: str, failure: Any, node: HostPort) -> HostPort | None:
        """Note what an error reply says about the map.

        Returns the node to ask just this once, if it names one (ASK).
        """
        if code == "ASK":
            return redirected_to(failure.text, node, self.topology.remap)
        if code == "MOVED":
            self.topology.suspect(node, redirected_to(failure.text, node, self.topology.remap))
        elif code in DOWN:
            self.topology.suspect(node)
        return None

    async def _node(self, slot: int, timeout: float) -> HostPort:
        """The master of the slot; refreshes the map if it is unknown or in doubt."""
        known = self.topology.map
        node = None if known is None else known.node(slot)
        if node is None or node in self.topology.suspects:
            await self.topology.refresh(self._handshake, self._runtime, node, timeout)
            known = self.topology.map
            node = None if known is None else known.node(slot)
        if known is not self._pruned:
            await self._prune(set(() if known is None else known.nodes))
            self._pruned = known
        if node is None:
            raise StoreUnavailable(
                f"{self.topology.label}: nobody tells who has slot {slot}; see CLUSTER INFO and CLUSTER NODES"
            )
        return node

    async def masters(self, timeout: float) -> list[HostPort]:
        """All nodes that have slots, from a fresh map."""
        await self.topology.refresh(self._handshake, self._runtime, None, timeout)
        known = self.topology.map
        return [] if known is None else [master.node for master in known.masters]

    async def replicas(self, request: bytes, timeout: float) -> int:
        """How many replicas the shard of a request has."""
        slot = slot_of(request)
        await self._node(slot, timeout)
        known = self.topology.map
        owner = None if known is None else known.owners[slot]
        return 0 if owner is None else owner.replicas

    async def ask_at(
        self,
        node: HostPort,
        request: bytes,
        timeout: float,
        replies: int = 1,
        again: bool = True,
        asking: bool = False,
    ) -> Any:
        """The reply of one particular node, whatever it is."""
        transport = self._transports.get(node)
        if transport is None:
            transport = self._opened(node)
        timeout = min(timeout, ATTEMPT_S)
        if not asking:
            return await transport.ask(request, timeout, replies, again)
        _, *answers = await transport.ask(ASKING + request, timeout, replies + 1, again)
        return answers[0] if replies == 1 else answers

    # ---- batches -------------------------------------------------------------

    async def ask_all(
        self, requests: Sequence[tuple[bytes, bytes]], timeout: float, confirm: Confirm | None = None
    ) -> list[Any]:
        """The reply to each request, or its error; the requests for one node are sent together.

        Each request comes in two forms: by the hash of its script, and with the source. Requests for a node
        in trouble are sent last and given up first, because the others must not wait for them. With
        `confirm`, its command follows the requests to each node, and a reply that too few replicas have is
        `Unconfirmed`.
        """
        now = self._runtime.now
        until, pause = now() + timeout, 0.0
        rounds_until = min(until, now() + ROUNDS_S)
        answers: list[Any] = [None] * len(requests)
        unanswered = {number: by_hash for number, (by_hash, _) in enumerate(requests)}
        while True:
            await self._round(unanswered, answers, until, confirm)
            for number in list(unanswered):
                answer = answers[number]
                if isinstance(answer, ErrorReply) and answer.code == "NOSCRIPT":
                    unanswered[number] = requests[number][1]
                elif not isinstance(answer, StoreUnavailable) and refused(answer) not in DOWN:
                    del unanswered[number]
            if not unanswered or now() + pause >= rounds_until:
                return answers
            pause = await self._paused(pause)

    async def _round(
        self, asked: dict[int, bytes], answers: list[Any], until: float, confirm: Confirm | None
    ) -> None:
        """Send each node its requests, and collect the replies; nodes in trouble come last."""
        now, by_node = self._runtime.now, dict[HostPort, list[int]]()
        for number, request in asked.items():
            try:
                node = await self._node(slot_of(request), max(0.001, until - now()))
                by_node.setdefault(node, []).append(number)
            except StoreUnavailable as error:
                answers[number] = error
        for left, node in zip(range(len(by_node), 0, -1), sorted(by_node, key=self._troubled), strict=True):
            numbers, share = by_node[node], max(0.001, (until - now()) / left)
            request = b"".join([asked[number] for number in numbers])
            try:
                # Not repeated by the transport: connecting must not take the others' time, and the next round
                # comes soon.
                replies = await self._ask_confirmed(node, request, share, len(numbers), confirm)
            except (StoreUnavailable, ClientClosed) as error:
                self._troubles[node] = now()
                replies = [self._trouble(error, node, True)] * len(numbers)
            else:
                self._troubles.pop(node, None)
            for number, reply in zip(numbers, replies, strict=True):
                if code := refused(reply):
                    self._redirected(code, reply, node)
                answers[number] = _moved_on(self.topology.label) if code == "MOVED" else reply

    async def _ask_confirmed(
        self, node: HostPort, request: bytes, timeout: float, replies: int, confirm: Confirm | None
    ) -> list[Any]:
        """The replies of one node; with `confirm`, each as `Unconfirmed` if too few replicas have what was
        written.
        """
        if confirm is None:
            answer: Any = await self.ask_at(node, request, timeout, replies, again=False)
            return [answer] if replies == 1 else list(answer)
        wanted, command = await confirm(request, min(timeout, ATTEMPT_S))
        answers: list[Any]
        *answers, confirmed = await self.ask_at(node, request + command, timeout, replies + 1, again=False)
        if not isinstance(confirmed, int):
            return [confirmed] * replies
        if confirmed >= wanted:
            return answers
        return [
            reply if isinstance(reply, ErrorReply) else Unconfirmed(reply, confirmed, wanted)
            for reply in answers
        ]

    def _troubled(self, node: HostPort) -> float:
        return self._troubles.get(node, 0.0)

    # ---- transports -------------------------------------------------------------------

    def _opened(self, node: HostPort) -> Transport:
        with self._mutex:
            if self._closed:
                raise ClientClosed("this client was closed")
            transport = self._transports.get(node)
            if transport is None:
                transport = self._transports[node] = self._make(self.topology.route_to(node))
            return transport

    async def _prune(self, known: set[HostPort]) -> None:
        with self._mutex:
            gone = [self._transports.pop(node) for node in list(self._transports) if node not in known]
        for transport in gone:
            await transport.close()

    async def warm(self, route: Route, timeout: float) -> None:
        assert isinstance(route, NodeRoute)
        transport = self._transports.get(route.node)
        await (self._opened(route.node) if transport is None else transport).warm(route, timeout)

    def inside(self) -> bool:
        owned = self._mutex._is_owned() or self.topology.inside()
        return owned or any(transport.inside() for transport in list(self._transports.values()))

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self.topology.after_fork()
        for transport in self._transports.values():
            transport.after_fork()

    async def close(self) -> None:
        with self._mutex:
            self._closed = True
            transports = list(self._transports.values())
        for transport in transports:
            await transport.close()


def refused(reply: Any) -> str:
    """The code of an error reply that says that this node cannot serve the slot and did nothing; otherwise
    empty.
    """
    if not isinstance(reply, ErrorReply):
        return ""
    if reply.code in ("MOVED", "ASK", "TRYAGAIN"):
        return reply.code
    return next((word for word in DOWN if word in reply.text), "")  # Redis 6 wraps the errors of scripts


def _moved_on(cluster: str) -> StoreUnavailable:
    return StoreUnavailable(f"{cluster}: another node has just taken this slot over; try again in a moment")
