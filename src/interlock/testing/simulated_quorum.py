"""The nodes of a simulated quorum, which crash, forget, hang and jump, and a client's transport to them.

A node's memory is `redlock_node`, the executable specification of the scripts. A request belongs to the
server process it was sent to: no connection outlives that process, so a late request never arrives at a
server that has restarted. The requests of one client to one node arrive in order, except for those that a
fault delays or repeats; several real connections do no better.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from typing import Any

from interlock._core.runtime import Signal
from interlock.backends.redlock.transport.interface import ignore_late_vote, ignore_unacknowledged
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import (
    OnLateVote,
    OnReply,
    OnUnacknowledged,
    Release,
    Request,
    Vote,
)
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import Standing
from interlock.testing.faults import Link
from interlock.testing.redlock_node import NodeMemory
from interlock.testing.simulated_runtime import SimulatedRuntime
from interlock.testing.world import World

BORN = 1_700_000_000.0  # the time on a correct wall clock when the world begins


class SimulatedNode:
    """One server with its own clock. If it is `durable`, every write is on disk before it is answered."""

    def __init__(self, world: World, label: str, *, drift: float = 0.0, durable: bool = False) -> None:
        self.world = world
        self.label = label
        self.up = True
        self.life = 1  # the number of its process
        self.hung_until = 0.0  # true time
        self._rate = 1.0 + drift
        self._jumped = 0.0
        self.memory = NodeMemory(self.clock, f"{label}/1", durable)
        self._saved: Any = None

    def clock(self) -> int:
        """Its wall clock, in microseconds, by which claims lapse."""
        return int((BORN + self.world.time * self._rate + self._jumped) * 1e6)

    def jump(self, seconds: float) -> None:
        """Its clock jumps, ahead or back."""
        self._jumped += seconds

    def hang(self, seconds: float) -> None:
        """Like SIGSTOP: it answers nobody for a while, then everybody."""
        self.hung_until = max(self.hung_until, self.world.time + seconds)

    def flush(self) -> None:
        """FLUSHALL: the process goes on, but its memory is gone."""
        self.memory.flush()

    def save(self) -> None:
        """Write its present memory to disk."""
        memory = self.memory
        self._saved = deepcopy((memory.claims, memory.marks, memory.quorum, memory.numbers))

    def crash(self) -> None:
        """Like kill -9: its connections break, and new ones are refused."""
        self.up = False
        self.life += 1

    def start(self, *, saved: bool = False) -> None:
        """Start another process: with all memory if the node is durable, otherwise with none, or with what
        was saved.
        """
        self.memory.restart(f"{self.label}/{self.life}")
        if saved and self._saved is not None:
            memory = self.memory
            memory.claims, memory.marks, memory.quorum, memory.numbers = deepcopy(self._saved)
        self.up = True
        self.hung_until = 0.0


class Mailbox:
    """The replies to one request."""

    def __init__(self, signal: Callable[[], Signal], sent: float) -> None:
        self._fresh = signal
        self.sent = sent
        self.over = False  # nobody waits for further replies
        self.replies: list[tuple[int, Any]] = []
        self.came = signal()

    def put(self, node: int, reply: Any) -> None:
        self.replies.append((node, reply))
        self.came.set()

    def empty(self) -> list[tuple[int, Any]]:
        replies, self.replies = self.replies, []
        self.came = self._fresh()
        return replies


class SimulatedQuorumTransport:
    """A `QuorumTransport` to simulated nodes for one client, over one link to each node; `network` carries
    the messages.
    """

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        links: Sequence[Link],
        runtime: SimulatedRuntime,
        network: SimulatedRuntime,
    ) -> None:
        self.labels = [node.label for node in nodes]
        self._nodes = nodes
        self._links = links
        self._runtime = runtime
        self._network = network
        self.on_unacknowledged: OnUnacknowledged = ignore_unacknowledged
        self.on_late_vote: OnLateVote = ignore_late_vote
        # By node: replies to votes that nobody has read yet, and when the votes were sent.
        self._late: list[list[tuple[Vote, Any, float]]] = [[] for _ in nodes]
        self._lives = [0] * len(nodes)  # which process each connection leads to; 0: there is none

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        now = self._runtime.now
        await self._runtime.sleep(0.0)  # a task that is cancelled here has sent nothing
        sent = now()
        box = Mailbox(self._runtime.signal, sent)
        waiting = {node for node in to if node in awaited}
        for node in to:
            self._post(node, request, box if node in waiting else None)
        lost: list[int] = []
        replied = 0
        waits_for = timeouts.longest if timeouts.least else timeouts.timeout
        while waiting and not box.over:
            left = waits_for - (now() - sent)
            if left <= 0 or not await self._runtime.wait(box.came, left):
                break
            for node, reply in box.empty():
                if box.over:
                    self._put(node, request, reply, box)
                    continue
                waiting.discard(node)
                self._read_late(node)
                if isinstance(reply, StoreUnavailable):
                    lost.append(node)
                else:
                    replied += 1
                    if replied == timeouts.least:
                        waits_for = timeouts.for_all(now() - sent)
                box.over = on_reply(node, reply, sent, now())
        if box.over:
            return lost
        box.over = True
        return [*lost, *sorted(waiting)]

    def _put(self, node: int, request: Request, reply: Any, box: Mailbox) -> None:
        """Deliver a reply; or keep a vote that nobody waits for, as a blocking transport does, until the
        node is next read.
        """
        if not box.over:
            box.put(node, reply)
        elif isinstance(request, Vote) and not isinstance(reply, InterlockError):
            self._late[node].append((request, reply, box.sent))

    def _read_late(self, node: int) -> None:
        late, self._late[node] = self._late[node], []
        for vote, reply, sent in late:
            self.on_late_vote(node, vote, reply, sent, self._runtime.now())

    def _post(self, node: int, request: Request, box: Mailbox | None) -> None:
        """Send one request; a node that is awaited is connected to first, if need be."""
        if not self._lives[node] and box is None:
            self._not_read(node, request)
            return
        link = self._links[node]
        arrived = self._network.signal()
        delayed = link.happens(link.faults.delay)
        behind = None if delayed else link.last
        if not delayed:
            link.last = arrived
        if not link.happens(link.faults.lose_request):
            self._network.spawn("request", self._carry(node, request, box, behind, arrived, delayed))
        else:
            arrived.set()
            self._not_read(node, request)  # a request that is lost for good breaks its connection
        if link.happens(link.faults.repeat):
            self._network.spawn("again", self._repeat(node, request))

    async def _carry(
        self,
        node: int,
        request: Request,
        box: Mailbox | None,
        behind: Signal | None,
        arrived: Signal,
        delayed: bool,
    ) -> None:
        """Bring a request to its node, and the reply back."""
        link, server = self._links[node], self._nodes[node]
        life = self._lives[node]
        try:
            await self._travel(link, delayed)
            if behind is not None and not behind.is_set():
                await self._network.wait(behind, None)
            if link.severed:
                self._not_read(node, request)
                return
            if not life and server.up:  # connected to the process that runs now
                life = self._lives[node] = server.life
            await self._stand_still(server)
        finally:
            arrived.set()
        reply: Any
        if server.up and server.life == life:
            reply = server.memory.answer(request, node)
        else:
            reply = StoreUnavailable(f"{server.label}: the connection broke")
            self._lives[node] = 0
            self._not_read(node, request)
        if box is None or link.happens(link.faults.lose_reply):
            return
        await self._travel(link, link.happens(link.faults.delay))
        if not link.severed:
            self._put(node, request, reply, box)

    def _not_read(self, node: int, request: Request) -> None:
        if isinstance(request, Vote | Release):
            self.on_unacknowledged(node, request)

    async def _repeat(self, node: int, request: Request) -> None:
        """Deliver the same request again, much later, if the server process is still the same."""
        link, server, life = self._links[node], self._nodes[node], self._lives[node]
        await self._network.sleep(link.random.random() * link.faults.long)
        await self._stand_still(server)
        if not link.severed and server.up and server.life == life:
            server.memory.answer(request, node)

    async def _travel(self, link: Link, delayed: bool) -> None:
        await self._network.sleep(link.flight(delayed))
        while (stalled := link.stalled_until - self._network.now()) > 0:
            await self._network.sleep(stalled)

    async def _stand_still(self, server: SimulatedNode) -> None:
        while (left := server.hung_until - server.world.time) > 0:
            await self._network.sleep(left)

    def standing(self, busy: list[Any]) -> Standing | None:
        found: Standing | None = busy[4]
        return found

    def prepare(self) -> None:
        """Nothing: connections are made with the first request."""

    def connected(self) -> dict[int, InterlockError | None]:
        return dict.fromkeys(range(len(self._nodes)))

    def inside(self) -> bool:
        return False

    def round_trip(self, least: int) -> float:
        return 0.0

    def after_fork(self) -> None:
        self._lives = [0] * len(self._nodes)

    async def close(self) -> None:
        """Give up the connections."""
        self._lives = [0] * len(self._nodes)
