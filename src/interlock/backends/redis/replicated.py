"""A store whose grants, renewals, evictions and writes of registers count only once enough replicas have them
(`replicas=`): WAIT, on the connection of the write. So do releases that leave a `min_hold`; any other release
may be lost, since the claim then lapses.

If too few replicas confirm a grant in time, it does not count and the caller is told. The caller either asks
again under the same id, which waits for the replicas again, or gives up and takes its claim back. This
promises that a failover to any replica that confirmed keeps the grant. It does not promise that Redis
promotes such a replica.

If too few confirm the write of a register, or an eviction, the caller is told that it may have been applied:
it cannot be taken back, since others may have read it, or may hold. A release is repeated by the keeper.

If too few confirm a renewal, it counts as unanswered, and the lease ends by its own clock. Otherwise a holder
that is cut off together with its master would hold on, while another is granted the lock by the replica that
was promoted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

from interlock.backends.redis.address import Route
from interlock.backends.redis.errors import reply_error, understood
from interlock.backends.redis.pubsub.waiters import queue
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.wire import packing
from interlock.backends.redis.wire.resp import ErrorReply, bulk, command
from interlock.backends.redis.wire.scripts import WRITE_CONFIRMED, Call
from interlock.errors import InvalidURL, StoreUnavailable
from interlock.model import Busy, Claim, ClaimAnswer, Granted, NoAnswer, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT

MAX_WAITING_CONNECTIONS = 16  # connections that may wait for replicas at the same time
TICK_S = 0.15  # seconds by which WAIT may return late
MAX_CONFIRMATION_S = 1.0  # seconds that replicas may take to confirm a grant or a renewal

Replicas = int | Literal["majority", "all"]
ReplicasWanted = Callable[[bytes, float, bool], Awaitable[int]]
"""Tells how many replicas must confirm the write that a request asks for, within a number of seconds.

If the flag is set, the number of replicas that was counted last will do, unless none was: a renewal does not
wait for a count.
"""


class TooFewReplicas(Exception):
    """Fewer replicas than wanted confirmed a grant, an eviction or a `min_hold`."""

    def __init__(self, reply: Any, confirmed: int, wanted: int) -> None:
        super().__init__(confirmed, wanted)
        self.reply, self.confirmed, self.wanted = reply, confirmed, wanted


def wait_command(wanted: int, seconds: float) -> bytes:
    """The command that waits until so many replicas have what its connection wrote before."""
    return command(b"WAIT", b"%d" % wanted, packing.millis(seconds))


def replica_timeout(timeout: float) -> float:
    """Seconds that replicas may take to confirm renewals which must be answered in `timeout` seconds."""
    return min(
        MAX_CONFIRMATION_S, max(0.01, timeout - TICK_S)
    )  # Redis checks the timeout of WAIT only ten times a second


def unconfirmed(
    renewals: Sequence[Renewal], answers: Sequence[RenewAnswer], confirmed: int, wanted: int
) -> list[RenewAnswer]:
    """The answers to renewals that too few replicas have: no holder gains time by them.

    A place in a queue has no deadline.
    """
    why = f"{confirmed} of the {wanted} replicas wanted confirmed the renewal in time"
    return [
        NoAnswer(f"{renewal.resource}: {why}")
        if isinstance(answer, Renewed) and not renewal.waiting
        else answer
        for renewal, answer in zip(renewals, answers, strict=True)
    ]


def checked_replicas(text: str) -> Replicas:
    """The option `replicas` as a URL spells it."""
    if text == "majority":
        return "majority"
    if text == "all":
        return "all"
    if text.isdecimal() and 1 <= int(text) <= 1000:
        return int(text)
    raise InvalidURL(f"replicas={text}: say how many must confirm a grant: a number, majority, or all")


def enough(wanted: Replicas, replicas: int) -> int:
    """How many of the replicas must confirm; the master itself counts towards a majority."""
    if wanted == "all":
        return replicas
    return (replicas + 1) // 2 if wanted == "majority" else wanted


class ReplicatedStore(RedisStore):
    """Claims, renewals, evictions and writes that count only once enough replicas have them."""

    _replicated = True

    def replicate(self, wanted: ReplicasWanted, wait_transport: Transport) -> None:
        """Set, before first use, how many replicas must confirm, and the transport for requests that wait
        for them.
        """
        self._wanted = wanted
        self._wait_transport = wait_transport

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        try:
            return await super().claim(claim, timeout)
        except TooFewReplicas as short:
            if not isinstance(short.reply, int):
                self._notify(understood(self._label, packing.claim_answer, claim, short.reply)[-1])
            # The claim is not released here: the release could arrive after the caller has asked again, and
            # end that grant. A caller that asks again waits for the replicas again; one that gives up takes
            # the claim back.
            raise StoreUnavailable(
                f"{claim.resource}: {short.confirmed} of the {short.wanted} replicas wanted confirmed the "
                "grant in time, so it does not count and is taken back; see INFO replication on "
                f"{self._label}"
            ) from None

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        """Wait as every store does, but return no grant: the caller claims again, so that replicas confirm
        it.
        """
        await super().wait(claim, busy, timeout)
        return None

    async def _ask_claim(self, call: Call, body: bytes, timeout: float) -> Any:
        until = self._runtime.now() + timeout
        wanted = await self._wanted(call.by_hash + body, timeout, False)
        timeout = max(0.001, until - self._runtime.now())
        # Half of the time, so that the claim can be taken back; and Redis checks this timeout only ten times
        # a second.
        waiting = min(MAX_CONFIRMATION_S, max(0.01, (timeout - TICK_S) / 2))
        reply, confirmed = await self._run_and_wait(call, body, timeout, wanted, waiting)
        if understood(self._label, _too_few, reply, confirmed, wanted):
            raise TooFewReplicas(reply, confirmed, wanted)
        return reply

    async def _run_and_wait(
        self,
        call: Call,
        body: bytes,
        timeout: float,
        wanted: int,
        waiting: float,
        again: bool = True,
        pack: Callable[[], bytes] | None = None,
    ) -> tuple[Any, int]:
        """Run a script, and return its reply and how many replicas have what it wrote.

        `pack` makes the body anew if it is sent a second time: WAIT may take its whole time after NOSCRIPT.
        """
        wait = wait_command(wanted, waiting)
        reply, confirmed = await self._wait_transport.ask(call.by_hash + body + wait, timeout, 2, again)
        if isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT":
            body = body if pack is None else pack()
            reply, confirmed = await self._wait_transport.ask(
                call.with_source + body + wait, timeout, 2, again
            )
        if failures := [answer for answer in (reply, confirmed) if isinstance(answer, ErrorReply)]:
            raise reply_error(self._label, failures[0])
        return reply, understood(self._label, int, confirmed)

    async def _renew_batch(
        self, batch: list[Renewal], call: Call, body: bytes, timeout: float
    ) -> list[RenewAnswer]:
        if all(renewal.waiting for renewal in batch):
            return await super()._renew_batch(batch, call, body, timeout)
        until = self._runtime.now() + timeout
        wanted = await self._wanted(call.by_hash + body, timeout, True)
        timeout = max(0.001, until - self._runtime.now())
        reply, confirmed = await self._run_and_wait(call, body, timeout, wanted, replica_timeout(timeout))
        answers = understood(self._label, self._renewed, batch, reply)
        return answers if confirmed >= wanted else unconfirmed(batch, answers, confirmed, wanted)

    async def _write(self, name: str, body: bytes, timeout: float) -> Any:
        until, body = self._runtime.now() + timeout, body + bulk(b"1")
        wanted = await self._wanted(WRITE_CONFIRMED.by_hash + body, timeout, False)
        timeout = max(0.001, until - self._runtime.now())
        reply, confirmed = await self._run_and_wait(
            WRITE_CONFIRMED, body, timeout, wanted, replica_timeout(timeout), again=False
        )
        if understood(self._label, packing.written, reply)[0] and confirmed < wanted:
            raise self._unconfirmed("the change", confirmed, wanted)
        return reply

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        """Write the present record again, as its own writer would: WAIT counts only what its own connection
        has written.
        """
        until, record = self._runtime.now() + timeout, await self._record(name, timeout)
        if record is None:
            return version == 0
        present, writer, text = understood(self._label, packing.record_parts, record)
        if present != version:
            return False
        body = self._write_request(name, version, writer, text)
        reply = await self._write(name, body, max(0.001, until - self._runtime.now()))
        return understood(self._label, packing.written, reply)[0] == version

    async def _run_once(self, resource: str, call: Call, body: bytes, timeout: float) -> Any:
        until = self._runtime.now() + timeout
        wanted = await self._wanted(call.by_hash + body, timeout, False)
        timeout = max(0.001, until - self._runtime.now())
        try:
            reply, confirmed = await self._run_and_wait(
                call, body, timeout, wanted, replica_timeout(timeout), again=False
            )
        except StoreUnavailable:
            self._listener.wake(queue(resource))
            raise
        removed, told, _ = understood(self._label, packing.evicted, resource, reply)
        if removed and confirmed < wanted:
            self._notify(told)
            raise self._unconfirmed("the eviction", confirmed, wanted)
        return reply

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        try:
            return await super().release(resource, id, linger, timeout)
        except TooFewReplicas as short:
            if not isinstance(short.reply, int):
                understood(self._label, self._released, short.reply)
            raise self._unconfirmed(f"the min_hold of {resource}", short.confirmed, short.wanted) from None

    async def _ask_linger(self, call: Call, pack: Callable[[], bytes], timeout: float) -> Any:
        until = self._runtime.now() + timeout
        wanted = await self._wanted(call.by_hash + pack(), timeout, True)
        timeout = max(0.001, until - self._runtime.now())
        reply, confirmed = await self._run_and_wait(
            call, pack(), timeout, wanted, replica_timeout(timeout), again=False, pack=pack
        )
        if confirmed < wanted:
            raise TooFewReplicas(reply, confirmed, wanted)
        return reply

    def _unconfirmed(self, what: str, confirmed: int, wanted: int) -> StoreUnavailable:
        return StoreUnavailable(
            f"{confirmed} of the {wanted} replicas wanted confirmed {what} in time; see INFO replication on "
            f"{self._label}"
        )

    def after_fork(self) -> None:
        super().after_fork()
        self._wait_transport.after_fork()

    async def close(self) -> None:
        await self._wait_transport.close()
        await super().close()


def _too_few(reply: Any, confirmed: int, wanted: int) -> bool:
    """Whether it is a grant, and too few replicas have confirmed it."""
    return (isinstance(reply, int) or bool(reply[0] == 1)) and confirmed < wanted


class WaitTransport:
    """Several connections on one event loop, because a connection answers nobody else while it runs WAIT."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._load: dict[Transport, int] = {}  # requests under way on each

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        with self._least_loaded() as transport:
            return await transport.ask(request, timeout, replies, again)

    async def ask_all(self, requests: Any, timeout: float, confirm: Any) -> Any:
        """As that of a Cluster's router, of which these transports are then made."""
        with self._least_loaded() as transport:
            return await cast(Any, transport).ask_all(requests, timeout, confirm)

    @contextmanager
    def _least_loaded(self) -> Iterator[Transport]:
        transport = min(self._load, key=self._load.__getitem__, default=None)
        if transport is None or (self._load[transport] and len(self._load) < MAX_WAITING_CONNECTIONS):
            transport = self._make()
            self._load[transport] = 0
        self._load[transport] += 1
        try:
            yield transport
        finally:
            self._load[transport] -= 1

    async def warm(self, route: Route, timeout: float) -> None:
        """Do nothing: the keeper does not use these connections."""

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None:
        for transport in self._load:
            transport.after_fork()
        self._load = dict.fromkeys(self._load, 0)  # those requests were the parent's

    async def close(self) -> None:
        for transport in list(self._load):
            await transport.close()
