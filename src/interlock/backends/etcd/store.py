"""The store port over an etcd cluster. The algorithms are in `algorithm`; here they are put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from interlock.backends.etcd import checks
from interlock.backends.etcd.algorithm import claims, keeping, operators, registers, releases, waits
from interlock.backends.etcd.algorithm.renewals import renew
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.sides import Sides
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Examination,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)
from interlock.store import IO_TIMEOUT, Store, StoreDefaults

TRAITS = Traits(
    backend="etcd",
    fair=True,
    shares="any",
    lapses="session",
    wakes="server",
    reach="network",
    survives="minority",
    two_holders=(
        "an operator evicts the holder, deletes its key or revokes its lease",
        "the cluster is restored from a snapshot",
        "URLs name members of different clusters, and not all of these answer when a client connects",
        (
            "before etcd 3.4.31 and 3.5.13: a leader that was frozen revokes leases that its successor keeps "
            "(etcd 15247)"
        ),
    ),
    min_ttl=0.1,
    max_ttl=86400.0,
    largest_value=1_000_000,
)

CLOSE_TIMEOUT_S = 1.0  # seconds for revoking the leases of a client that closes


class EtcdStore(StoreDefaults):
    """Claims and registers on a cluster, for programs anywhere on the network."""

    traits = TRAITS

    def __init__(
        self, side: Side, blocking_side: EtcdStore | None, make_keeper: Callable[[], EtcdStore] | None = None
    ) -> None:
        self._side = side
        side.transport.on_connected = partial(claims.post_marks_again, side.sessions)
        self._sides: Sides[EtcdStore] = Sides(blocking_side, make_keeper)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._side.label}>"

    # ---- claims -------------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        return await claims.claim(self._side, claim, timeout)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        if busy is None:
            await waits.until_removed(self._side, claim, timeout)
            return None
        return await waits.until_admitted(self._side, claim, timeout)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        return await renew(self._side, renewals, timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        try:
            return await releases.release(self._side, resource, id, linger, timeout)
        except LeaseNotFound:  # the lease for tombstones was revoked by somebody
            self._side.sessions.tombstone_lease = None
            return await releases.release(self._side, resource, id, linger, timeout)

    # ---- operators ----------------------------------------------------------------------

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await operators.inspect(self._side, resource, timeout, limit=limit)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return await operators.scan(self._side, prefix, after, limit, IO_TIMEOUT)

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        return await operators.evict(self._side, resource, id, reason, foreign, no_expiry, IO_TIMEOUT)

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        await operators.watch(self._side, seen, timeout)

    # ---- registers ----------------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return await registers.read(self._side, name, timeout)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        return await registers.compare_and_set(self._side, name, version, value, id, timeout)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        await registers.watch(self._side, name, version, timeout)

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        examiner = Examiner(self._side.runtime.now, timeout)
        await checks.examine(self._side.transport, examiner)
        return examiner.result()

    # ---- housekeeping -------------------------------------------------------------------

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._side.sessions.on_lost(call)

    def inside(self) -> bool:
        return self._side.transport.inside() or self._side.sessions.mutex._is_owned()

    def blocking(self) -> Store:
        return self._sides.blocking or self

    def for_keeper(self) -> Store:
        return self._sides.keeper(self)

    def after_fork(self) -> None:
        self._side.sessions.after_fork()
        self._side.transport.after_fork()
        for other in self._sides.made:
            other._side.transport.after_fork()

    async def close(self) -> None:
        """Revoke the leases of this client, and close its connections."""
        await keeping.end_all(self._side, CLOSE_TIMEOUT_S)
        await self._side.transport.close()
        for other in self._sides.made:
            await other._side.transport.close()
