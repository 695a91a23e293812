"""The store port over one Redis server.

The scripts decide about claims; `pubsub.listener` receives grants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.listener import RECONNECT_PAUSE_S
from interlock.backends.kit.own_claims import OwnClaims
from interlock.backends.kit.polling import until_changed
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.kit.sides import Sides
from interlock.backends.redis.errors import reply_error, understood, unexpected_answer
from interlock.backends.redis.pubsub.listener import Listener
from interlock.backends.redis.pubsub.publishing import PublishRight
from interlock.backends.redis.pubsub.waiters import NoListenerThread, queue
from interlock.backends.redis.scan import Ask, ResourceScan
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.wire import packing
from interlock.backends.redis.wire.keys import Keys
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, bulk, command
from interlock.backends.redis.wire.scripts import (
    CLAIM,
    CLAIM_PLACE,
    EVICT,
    INSPECT,
    RELEASE,
    RELEASE_LINGER,
    RELEASE_PLACE,
    RELEASE_UNANSWERED,
    RENEW,
    STANDS,
    WRITE,
    Call,
)
from interlock.errors import InterlockError, StoreUnavailable
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

if TYPE_CHECKING:
    from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener

TRAITS = Traits(
    backend="redis",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="server",
    reach="network",
    survives="nothing",
    two_holders=(
        "the server loses its memory (restart without AOF, FLUSHALL, eviction)",
        "failover to a replica that missed the write",
        (
            "a master is replaced while it is cut off with some of its clients: for up to two ttls behind "
            "Sentinel, 1.5 times cluster-node-timeout and a ttl on a Cluster, until it stops at a single "
            "address; with replicas=majority not at all, unless enough replicas are on its side"
        ),
        "the server's clock jumps forward",
        "an operator evicts the holder or deletes its key",
    ),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
    blocks=True,
)

RENEWALS_PER_SCRIPT = 100  # renewals in one script: more would block the server for everybody else
REMEMBERED_S = 61.0  # seconds for which an eviction or a deleted register is remembered at least
EVICTIONS_PER_SCRIPT = b"200"  # holders evicted by one script: more would block the server as well


class RedisStore(StoreDefaults):
    """Claims and registers on one server, for programs anywhere on the network."""

    traits = TRAITS
    checks: Callable[[Examiner], Awaitable[None]]  # of the servers; set by `assembly`
    _replicated = False  # whether `_ask_claim` asks for claims, and `_ask_linger` for some releases

    def __init__(
        self,
        label: str,
        keys: Keys,
        transport: Transport,
        listener: Listener | ShardedListener,
        runtime: WaitRuntime,
        blocking_side: RedisStore | None,
    ) -> None:
        self._label = label
        self._keys = keys
        self._transport = transport
        self._listener = listener
        self._runtime = runtime
        # The blocking side of an asyncio store shares its listener.
        self.sides: Sides[RedisStore] = Sides(blocking_side)
        self._scan = ResourceScan(keys)
        self._doubt_callbacks: list[Callable[[], None]] = []
        self._own_claims = OwnClaims()
        self._publish_right = PublishRight(label)
        if blocking_side is not None:
            blocking_side._share_state_of(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._label}>"

    async def _run_once(self, resource: str, call: Call, body: bytes, timeout: float) -> Any:
        """Run a script that may admit waiters of ours. If its reply is lost, they are woken to ask for
        themselves.

        The script is never sent twice from here: a second reply could not tell who removed the claim.
        """
        try:
            reply = await self._transport.ask(call.by_hash + body, timeout, 1, False)
            return (
                await self._run_with_source(call, body, timeout, reply, False)
                if type(reply) is ErrorReply
                else reply
            )
        except StoreUnavailable:
            self._listener.wake(queue(resource))
            raise

    async def _run(self, call: Call, body: bytes, timeout: float, again: bool = True) -> Any:
        """Run a script in one round trip, or in two if the server does not know it yet."""
        reply = await self._transport.ask(call.by_hash + body, timeout, 1, again)
        if type(reply) is ErrorReply:
            return await self._run_with_source(call, body, timeout, reply, again)
        return reply

    async def _run_with_source(
        self, call: Call, body: bytes, timeout: float, failure: ErrorReply, again: bool = True
    ) -> Any:
        """Run a script with its source if the server does not know it; raise the error for any other error
        reply.
        """
        if failure.code == "NOSCRIPT":
            reply = await self._transport.ask(call.with_source + body, timeout, 1, again)
            if type(reply) is not ErrorReply:
                return reply
            failure = reply
        raise reply_error(self._label, failure)

    # ---- claims -------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        listener = self._listener
        # Before the request: see `wait`.
        channel, generation = listener.only or listener.subscription_of(claim.resource)
        call, body = CLAIM, packing.claim_request(self._keys, claim, channel)
        places = self._own_claims.places
        if places and (known := places.get(claim.id)) is not None:
            call, body = CLAIM_PLACE, body + bulk(b"%d" % known[1])
        try:
            if self._replicated:
                reply = await self._ask_claim(call, body, timeout)
            else:
                reply = await self._transport.ask(call.by_hash + body, timeout)
        except BaseException as error:
            self._own_claims.leave_unanswered(claim.id, error)
            raise
        if type(reply) is ErrorReply:
            reply = await self._run_with_source(call, body, timeout, reply)
        if type(reply) is int:
            return Granted(reply, claim.ttl)
        answer, place_token, told = understood(self._label, packing.claim_answer, claim, reply)
        if told:
            self._notify(told)
        if place_token:
            places[claim.id] = (generation, place_token)
        return answer

    async def _ask_claim(self, call: Call, body: bytes, timeout: float) -> Any:
        """Ask for a claim where replicas must confirm a grant."""
        raise NotImplementedError

    def _notify(self, told: Sequence[Any]) -> None:
        """Deliver the grants in a script's reply. An empty id says that the script could not publish."""
        understood(self._label, self._deliver, told)

    def _deliver(self, told: Sequence[Any]) -> None:
        if b"" in told:
            self._publish_right.denied()
            pairs = zip(told[::2], told[1::2], strict=True)
            told = [part for pair in pairs if pair[0] for part in pair]
        self._listener.notify(told)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        id, signal, listener = claim.id.encode(), self._runtime.signal(), self._listener
        until = self._runtime.now() + timeout
        generation, place_token = self._own_claims.places.get(claim.id, (0, 0))
        topics = (id, queue(claim.resource))
        subscribed = listener.enlist(signal, *topics)
        try:
            # Not before we listen: a message under an earlier subscription may be lost.
            channel, present = listener.only or listener.subscription_of(claim.resource)
            if not subscribed and not listener.subscribed(channel, signal):
                await self._runtime.wait(signal, timeout)
                return None  # messages from before the subscription are lost: the caller asks again
            if busy is None:
                if not await self._stands(claim, timeout):
                    return None
            elif generation != present:
                return None  # it asked before this subscription: the caller asks again
            if not listener.has_message(id):
                right = self._publish_right
                if right.works is None:
                    await right.check(self._transport, channel, timeout)
                await self._runtime.wait(signal, right.longest_wait(until - self._runtime.now()))
        finally:
            listener.forget(signal, *topics)
        token = listener.take_token(id)
        # A grant for an earlier place, which lapsed while this process was stopped, must not count for this
        # place.
        if not token or token != place_token or busy is None:
            return None
        # Somebody else may have sent the message: it counts until the first renewal, which the keeper sends
        # at once.
        return Granted(token, claim.place_ttl, unconfirmed=True)

    async def _stands(self, claim: Claim, timeout: float) -> bool:
        body = self._keys.claim_keys(claim.resource) + bulk(claim.id.encode())
        until = self._runtime.now() + timeout
        try:
            return bool(await self._run(STANDS, body, min(timeout, IO_TIMEOUT)))
        except StoreUnavailable:
            if self._runtime.now() < until:
                raise
            return False  # the time is up, which is an answer too: the caller asks again

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        until = self._runtime.now() + timeout
        answers: list[RenewAnswer] = []
        for start in range(0, len(renewals), RENEWALS_PER_SCRIPT):
            batch = list(renewals[start : start + RENEWALS_PER_SCRIPT])
            body = packing.renew_request(
                self._keys, batch, self._listener.subscription_of(batch[0].resource)[0]
            )
            call = RENEW.call(4 * len(batch), 1 + 4 * len(batch))
            left = max(0.001, until - self._runtime.now())
            answers += await self._renew_batch(batch, call, body, left)
        return answers

    async def _renew_batch(
        self, batch: list[Renewal], call: Call, body: bytes, timeout: float
    ) -> list[RenewAnswer]:
        """The answers to the renewals of one script."""
        reply = await self._run(call, body, timeout)
        return understood(self._label, self._renewed, batch, reply)

    def _renewed(self, batch: Sequence[Renewal], reply: Any) -> list[RenewAnswer]:
        """The answers in one script's reply. Waiters that were admitted or removed are woken to ask again."""
        *replies, told = reply
        self._notify(told)
        if places := self._own_claims.places:
            for renewal, said in zip(batch, replies, strict=True):
                if said != packing.WAITS and renewal.id in places:
                    self._listener.wake(renewal.id.encode())
        return [packing.renew_answer(self._label, r, said) for r, said in zip(batch, replies, strict=True)]

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        name, listener, own = id.encode(), self._listener, self._own_claims
        channel, _ = listener.only or listener.subscription_of(resource)
        names = self._keys.of_releases.get(resource) or self._keys.claim_keys(resource)
        body = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (names, len(name), name, len(channel), channel)
        call, pack = RELEASE, None
        if linger > 0 or id in own.places or id in own.unanswered:
            call, pack = self._release_known(id, linger, body)
            body = pack()
        try:
            # Never sent twice from here: a second reply could not tell who removed the claim.
            if pack is not None and linger > 0 and self._replicated:
                reply = await self._ask_linger(call, pack, timeout)
            else:
                reply = await self._transport.ask(call.by_hash + body, timeout, 1, False)
            if type(reply) is ErrorReply:
                body = body if pack is None else pack()
                reply = await self._run_with_source(call, body, timeout, reply, False)
        except StoreUnavailable:
            listener.wake(queue(resource))  # it may have admitted waiters of ours: they ask for themselves
            raise
        if call is not RELEASE:
            own.forget(id)
        if listener.tokens or listener.topics:
            listener.claim_removed(name)
        if type(reply) is int:
            return reply == 1
        return understood(self._label, self._released, reply)

    async def _ask_linger(self, call: Call, pack: Callable[[], bytes], timeout: float) -> Any:
        """Ask for a release that leaves a `min_hold`, where replicas must confirm it."""
        raise NotImplementedError

    def _released(self, reply: Any) -> bool:
        removed, *told = reply
        self._deliver(told)
        return bool(removed == 1)

    def _release_known(self, id: str, linger: float, body: bytes) -> tuple[Call, Callable[[], bytes]]:
        """The request with what we know of the claim: its place, and whether requests for it may still
        arrive.

        It is packed each time it is sent: `linger` counts from now, and not from a try that the server
        answered with NOSCRIPT, perhaps only after it had waited for the replicas.
        """
        own, now = self._own_claims, self._runtime.now
        free_from = now() + linger
        known = own.places.get(id)
        place_token = bulk(b"%d" % (known[1] if known else 0))
        # With replicas this form is used for a `min_hold`, too: it writes each time it is repeated, and WAIT
        # counts only what its own connection has written.
        if id in own.unanswered or (linger > 0 and self._replicated):
            call, rest = RELEASE_UNANSWERED, place_token + b"$1\r\n1\r\n"
        else:
            call, rest = (RELEASE_PLACE, place_token) if known else (RELEASE_LINGER, b"")

        def pack() -> bytes:
            return body + bulk(packing.millis(free_from - now()) if linger > 0 else b"0") + rest

        return call, pack

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        body = self._keys.claim_keys(resource) + bulk(self._listener.subscription_of(resource)[0])
        body += bulk(b"" if limit is None else b"%d" % limit)
        reply = await self._run(INSPECT, body, timeout)
        found = understood(self._label, packing.queue, resource, reply)
        self._notify(reply[2])
        return found

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        try:
            names = await self._scan.names_after(self._servers, prefix, after)
        except InterlockError:
            raise
        except MALFORMED as error:
            raise unexpected_answer(self._label, error) from error
        found: list[str] = []
        for name, sure in names:
            if len(found) >= limit:
                break
            if sure or (await self.inspect(name, limit=1)).standings:
                found.append(name)
        return found

    async def _servers(self) -> list[Ask]:
        """How to ask each server that has keys of ours."""
        return [self._ask]

    async def _ask(self, request: bytes, replies: int = 1) -> Any:
        reply = await self._transport.ask(request, IO_TIMEOUT, replies)
        if isinstance(reply, ErrorReply):
            raise reply_error(self._label, reply)
        return reply

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        body = self._keys.claim_keys(resource) + bulk((id or "").encode()) + bulk(reason.encode())
        body += bulk(self._listener.subscription_of(resource)[0]) + bulk(packing.millis(REMEMBERED_S))
        body += packing.foreign_flags(foreign, no_expiry) + bulk(EVICTIONS_PER_SCRIPT)
        removed: list[Standing] = []
        upto = b""
        while True:
            reply = await self._run_once(resource, EVICT, body + bulk(upto), IO_TIMEOUT)
            some, told, upto = understood(self._label, packing.evicted, resource, reply)
            self._notify(told)
            removed += some
            if not upto:
                return removed

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        await until_changed(self._runtime, self.inspect, seen, timeout)

    # ---- registers ----------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return understood(self._label, packing.versioned, await self._record(name, timeout))

    async def _record(self, name: str, timeout: float) -> Any:
        """The record of a register, as the server keeps it."""
        reply = await self._transport.ask(command(b"GET", self._keys.register(name)), timeout)
        if isinstance(reply, ErrorReply):
            raise reply_error(self._label, reply)
        return reply

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        text = b"" if value is None else b"=" + value.encode()
        body = self._write_request(name, version, id.encode(), text)
        reply = await self._write(name, body, timeout)
        written, told = understood(self._label, packing.written, reply)
        if not told:
            self._publish_right.denied()
        return Versioned(value, written) if written else None

    def _write_request(self, name: str, version: int, id: bytes, text: bytes) -> bytes:
        parts = (b"%d" % version, id, text, packing.millis(REMEMBERED_S))
        return self._keys.register_keys(name) + b"".join([bulk(part) for part in parts])

    async def _write(self, name: str, body: bytes, timeout: float) -> Any:
        """The reply to the write of a register.

        Sent once: whoever repeats it must know that the first copy may have counted. See `Cell._write`.
        """
        return await self._run(WRITE, body, timeout, again=False)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        until, key, signal = self._runtime.now() + timeout, self._keys.register(name), self._runtime.signal()
        listener = self._listener.registers
        listener.listen(signal, key)
        try:
            if not listener.subscribed(key, signal):
                await self._runtime.wait(signal, timeout)
                return  # writes from before the subscription are not announced: the caller reads again
            left = until - self._runtime.now()
            if (await self.read(name, max(0.001, min(left, IO_TIMEOUT)))).version == version:
                await self._publish_right.check(self._transport, key, max(0.001, until - self._runtime.now()))
                left = self._publish_right.longest_wait(until - self._runtime.now())
                await self._runtime.wait(signal, max(0.0, left))
        except NoListenerThread:
            await self._runtime.wait(
                signal, max(0.0, min(RECONNECT_PAUSE_S, timeout))
            )  # then the caller reads again
        except StoreUnavailable:
            if self._runtime.now() < until:
                raise  # otherwise the time is up, which is an answer too
        finally:
            listener.forget(signal, key)

    # ---- housekeeping -----------------------------------------------------------------

    def on_doubt(self, call: Callable[[], None]) -> None:
        self._doubt_callbacks.append(call)

    def master_changed(self) -> None:
        """The master has changed: subscribe there, and have the client verify its leases."""
        self._listener.resubscribe()
        for call in self._doubt_callbacks:
            call()

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        examiner = Examiner(self._runtime.now, timeout)
        await self.checks(examiner)
        return examiner.result()

    def inside(self) -> bool:
        return self._transport.inside() or self._listener.inside()

    def blocking(self) -> Store:
        return self.sides.blocking or self

    def for_keeper(self) -> Store:
        side = self.sides.keeper(self)
        if side is not self:  # so that a claim which the keeper takes back is forgotten here, too
            side._share_state_of(self)
        return side

    def _share_state_of(self, other: RedisStore) -> None:
        """Share the knowledge about claims with another side of the same client."""
        self._own_claims, self._publish_right = other._own_claims, other._publish_right

    def after_fork(self) -> None:
        self._own_claims.clear()
        self._transport.after_fork()
        # The blocking side does it a second time, which is harmless: nobody waits yet.
        self._listener.after_fork()
        for side in self.sides.kept:
            side._transport.after_fork()

    async def close(self) -> None:
        self._listener.close()
        await self._transport.close()
        for side in self.sides.kept:
            await side._transport.close()
        if self.sides.blocking is not None:
            await self.sides.blocking.close()
