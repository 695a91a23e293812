"""The store port over several independent servers: Redlock, with fencing tokens that rise whatever the clocks
do.

Redlock is Salvatore Sanfilippo's algorithm ("Distributed Locks with Redis", redis.io). Martin Kleppmann ("How
to do distributed locking", 2016) showed what it lacks: fencing tokens, and safety when a clock jumps, a
client pauses or a node restarts without its memory; Sanfilippo answered in "Is Redlock safe?" (2016). Here
each grant carries a number that a majority accepted (`algorithm.claims`), clocks that jump do not count
(`algorithm.clock`), and a node that forgot what it granted has no vote until its quarantine is over
(`algorithm.recovery`). `TRAITS.two_holders` lists what remains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from interlock._support import native
from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.polling import until_changed, until_removed
from interlock.backends.kit.runtime import StoreRuntime
from interlock.backends.redlock.algorithm import claims, operators
from interlock.backends.redlock.algorithm import renewals as renewing
from interlock.backends.redlock.algorithm.backoff import Backoff
from interlock.backends.redlock.algorithm.beginning import NodeState
from interlock.backends.redlock.algorithm.operators import NodeView, ResourceListing
from interlock.backends.redlock.algorithm.recovery import Recovery
from interlock.backends.redlock.quorum import Quorum
from interlock.backends.redlock.wire.requests import Evict, Release
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Examination,
    Granted,
    NoAnswer,
    Queue,
    Renewal,
    RenewAnswer,
    Renewed,
    Standing,
    Traits,
)
from interlock.store import IO_TIMEOUT, NoRegisters, Store, StoreDefaults

TRAITS = Traits(
    backend="redlock",
    fair=False,
    shares="pairwise",
    lapses="claim",
    wakes="poll",
    reach="network",
    survives="minority",
    two_holders=(
        "a node's clock jumps forward, before a client that has not seen it before",
        "a node evicts single keys (a maxmemory-policy other than noeviction)",
        "all nodes lose their memory at once, and a new client takes them for new",
        "an operator evicts the holder, deletes its keys, or admits a node before its quarantine is over",
        "a node is restored from a backup, or clients name different nodes",
    ),
    min_ttl=0.05,
    max_ttl=365 * 86400.0,
    registers=False,
)

NO_REGISTERS = (
    "redlock keeps no registers: a majority of independent servers agrees on who holds, not on values; "
    "keep these on one server, with redis://"
)


class KeeperConnections:
    """The keeper's own connections, made together with the client's first ones, before anything is granted.

    Threads and tasks of a client take turns on their connections. A renewal that waited for its turn would be
    late just when the client is busiest; and a renewal that needed a new connection would fail on servers
    that accept no more of them.
    """

    def __init__(self) -> None:
        self._store: RedlockStore | None = None
        self.made = True  # while there is no keeper, there is nothing to make

    def keep(self, store: RedlockStore) -> None:
        """Let this store be the keeper's.

        Only the thread that made a socket of gevent or eventlet can use it: there the keeper's thread
        connects later, itself.
        """
        self._store, self.made = store, bool(native.green("socket"))

    def prepare(self) -> None:
        if self._store is not None:
            self._store._quorum.transport.prepare()

    async def missing(self, runtime: StoreRuntime, quorum: Quorum) -> dict[int, str | InterlockError]:
        """Wait until the keeper is connected to a majority; return by node why it is not, or nothing."""
        members, until = quorum.members, runtime.now() + quorum.connect_timeout
        while self._store is not None:
            standing = self._store._quorum.transport.connected()
            if list(standing.values()).count(None) >= members.majority:
                break
            if len(standing) == members.size or runtime.now() >= until:
                return {node: standing.get(node) or "no answer" for node in members.everyone}
            await runtime.wait(runtime.signal(), 0.002)
        self.made = True
        return {}

    def after_fork(self) -> None:
        if self._store is not None:
            self._store.after_fork()
            self.keep(self._store)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


class RedlockStore(StoreDefaults, NoRegisters):
    """Claims on a majority of nodes, for programs anywhere on the network."""

    traits = TRAITS
    checks: Callable[[RedlockStore, Examiner], Awaitable[None]]  # of the nodes; set by `open`
    no_registers = NO_REGISTERS

    def __init__(
        self,
        quorum: Quorum,
        runtime: StoreRuntime,
        random: Callable[[], float],
        blocking_side: RedlockStore | None = None,
    ) -> None:
        self._quorum = quorum
        self._runtime = runtime
        self._random = random
        self._blocking_side = (
            blocking_side  # the blocking store beside an asyncio store; both share one membership
        )
        self._keeper_connections = self._kept_for = KeeperConnections()
        self._keeper: Callable[[], RedlockStore] | None = None  # makes the keeper's store
        self._listing = ResourceListing(runtime.now)
        self._backoff = Backoff()
        self._recovery = quorum.recovery = Recovery(quorum, runtime)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._quorum.members.labels)}>"

    # ---- claims -------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        held = self._quorum.members.held.get(claim.id)
        if held is not None:
            (answer,) = await self.renew([Renewal(claim.resource, claim.id, claim.ttl)], timeout)
            if isinstance(answer, Renewed):
                return Granted(held.token, claim.ttl)
            if isinstance(answer, NoAnswer):
                raise StoreUnavailable(answer.why)
            if answer.evicted:
                return answer
        if not self._keeper_connections.made:
            return await self._first_claim(claim, timeout)
        quorum, began = self._quorum, self._quorum.now()
        votes = await claims.vote(quorum, claim, began, timeout)
        if isinstance(votes, Granted):
            return votes
        return await claims.refused(quorum, claim, votes, began, timeout)

    async def _first_claim(self, claim: Claim, timeout: float) -> ClaimAnswer:
        """Claim, and connect for the keeper at the same time: nothing is granted that could not be
        renewed.
        """
        quorum, keeper_connections = self._quorum, self._keeper_connections
        quorum.transport.prepare()
        keeper_connections.prepare()
        answer = await claims.claim(quorum, claim, timeout, first=True)
        if isinstance(answer, Granted) and (
            faults := await keeper_connections.missing(self._runtime, quorum)
        ):
            with suppress(StoreUnavailable):
                await self.release(claim.resource, claim.id, 0.0, quorum.usual)
            raise quorum.too_few(f"{claim.resource}: the keeper's own connection", faults)
        return answer

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        runtime = self._runtime
        if busy is not None:
            pause = self._backoff.pause(claim.id, busy, self._random())
            await runtime.wait(runtime.signal(), max(0.0, min(timeout, pause)))
            return None
        await until_removed(runtime, self.inspect, claim, timeout, self._random)
        return None

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        return await renewing.renew(self._quorum, renewals, timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        if self._backoff.waiters:
            self._backoff.over(id)
        return await renewing.release(self._quorum, Release(resource, id, linger), timeout)

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await operators.inspect(self._quorum, resource, timeout, limit)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        found: list[str] = []
        for name in await self._listing.beyond(self._quorum, prefix, after, IO_TIMEOUT):
            if len(found) >= limit:
                break
            if (await self.inspect(name)).standings:
                found.append(name)
        return found

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        return await operators.evict(
            self._quorum, Evict(resource, id, reason, foreign, no_expiry), IO_TIMEOUT
        )

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        await until_changed(self._runtime, self.inspect, seen, timeout)

    # ---- for operators --------------------------------------------------------------

    async def view(self, resource: str, timeout: float = IO_TIMEOUT) -> list[NodeView]:
        """One resource as each node sees it: granted, free, no answer, quarantined, or what is wrong."""
        return await operators.view(self._quorum, resource, timeout)

    async def status(self) -> list[NodeState]:
        """What each node remembers of the quorum; changes nothing."""
        return await self._recovery.status()

    async def admit(self, label: str) -> NodeState:
        """Give a node its vote before its quarantine is over.

        The operator vouches that nothing it granted is still held.
        """
        return await self._recovery.admit(label)

    async def init(self, *, missing: bool = False) -> list[NodeState]:
        """Give every node its vote now.

        The operator vouches that nothing is held; `missing` allows unreachable nodes.
        """
        return await self._recovery.init(missing=missing)

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        examiner = Examiner(self._runtime.now, timeout)
        await self.checks(self, examiner)
        return examiner.result()

    # ---- housekeeping -----------------------------------------------------------------

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Never calls: a node that comes back without its memory has no vote."""

    def inside(self) -> bool:
        return self._quorum.transport.inside()

    def blocking(self) -> Store:
        return self if self._blocking_side is None else self._blocking_side

    def give_keeper(self, make: Callable[[], RedlockStore], of: RedlockStore | None = None) -> None:
        """Let `make` make the keeper's store when it is asked for; it renews what `of` is granted."""
        self._keeper = make
        self._kept_for = (of or self)._keeper_connections

    def for_keeper(self) -> Store:
        """The same store over connections of its own."""
        if self._keeper is None:
            return self
        kept = self._keeper()
        self._keeper = lambda: kept
        self._kept_for.keep(kept)
        return kept

    def after_fork(self) -> None:
        self._quorum.members.held.clear()
        self._recovery.after_fork()
        self._quorum.transport.after_fork()
        self._keeper_connections.after_fork()
        if self._blocking_side is not None:
            self._blocking_side.after_fork()

    async def close(self) -> None:
        self._recovery.close()
        await self._quorum.transport.close()
        await self._keeper_connections.close()
        if self._blocking_side is not None:
            await self._blocking_side.close()
