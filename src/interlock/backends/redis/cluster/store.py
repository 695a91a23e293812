"""The store port over a Cluster: as over one server, but renewals go slot by slot, and scans ask all
masters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from interlock.backends.redis.cluster.router import ClusterRouter, Unconfirmed, refused
from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener
from interlock.backends.redis.cluster.slots import HostPort
from interlock.backends.redis.errors import reply_error, understood
from interlock.backends.redis.replicated import ReplicatedStore, replica_timeout, unconfirmed, wait_command
from interlock.backends.redis.scan import Ask
from interlock.backends.redis.store import RENEWALS_PER_SCRIPT, RedisStore
from interlock.backends.redis.wire import packing
from interlock.backends.redis.wire.keys import slot
from interlock.backends.redis.wire.resp import ErrorReply, bulk
from interlock.backends.redis.wire.scripts import RENEW, STRETCH
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import Claim, ClaimAnswer, NoAnswer, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT

MOVING = ("TRYAGAIN", "ASK")
PASSING = ("BUSY", "LOADING")  # error replies that say nothing about a node's abilities


class ClusterStore(RedisStore):
    """Claims and registers on all shards of a Cluster. A shard that is down does not affect the others."""

    _transport: ClusterRouter

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        if not self._listener.channel_known(claim.resource):
            until = self._runtime.now() + timeout
            await self._probe_support(claim.resource, timeout)
            timeout = max(0.001, until - self._runtime.now())
        return await super().claim(claim, timeout)

    async def _probe_support(self, resource: str, timeout: float) -> None:
        """Find out whether the node of a resource has sharded channels, since a claim keeps its channel
        for good.
        """
        listener = self._listener
        assert isinstance(listener, ShardedListener)
        reply = await self._transport.ask(listener.support_probe(resource), timeout)
        able = not isinstance(reply, ErrorReply)
        if not able and (listener.must or refused(reply) or reply.code in PASSING):
            raise reply_error(self._label, reply)
        listener.set_support(resource, able)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        until = self._runtime.now() + timeout
        groups = self._by_slot(renewals)
        requests: list[tuple[bytes, bytes]] = []
        for group in groups:
            batch = [renewals[number] for number in group]
            body = packing.renew_request(
                self._keys, batch, self._listener.subscription_of(batch[0].resource)[0]
            )
            call = RENEW.call(4 * len(batch), 1 + 4 * len(batch))
            requests.append((call.by_hash + body, call.with_source + body))
        answers: dict[int, RenewAnswer] = {}
        errors: list[InterlockError] = []
        for group, reply in zip(groups, await self._ask_renewals(requests, renewals, timeout), strict=True):
            if isinstance(reply, ErrorReply) and reply.code in MOVING:
                for number in group:
                    answers[number] = await self._stretched(renewals[number], until)
            elif isinstance(reply, (ErrorReply, StoreUnavailable)):
                error = reply_error(self._label, reply) if isinstance(reply, ErrorReply) else reply
                errors.append(error)
                answers.update({number: NoAnswer(str(error)) for number in group})
            else:
                batch = [renewals[number] for number in group]
                renewed = understood(self._label, self._renewed, batch, reply)
                answers.update(zip(group, renewed, strict=True))
        if errors and len(errors) == len(groups):
            raise errors[0]
        return [answers[number] for number in range(len(renewals))]

    async def _ask_renewals(
        self, requests: list[tuple[bytes, bytes]], renewals: Sequence[Renewal], timeout: float
    ) -> list[Any]:
        """The reply to each request for renewals."""
        return await self._transport.ask_all(requests, timeout)

    def part(self, resource: str) -> str:
        known = self._transport.topology.map
        return "" if known is None else str(known.node(slot(self._keys.holder(resource))))

    def _by_slot(self, renewals: Sequence[Renewal]) -> list[list[int]]:
        """The indexes of the renewals, in groups that one script may handle."""
        slots: dict[int, list[int]] = {}
        for number, renewal in enumerate(renewals):
            slots.setdefault(slot(self._keys.holder(renewal.resource)), []).append(number)
        return [
            group[at : at + RENEWALS_PER_SCRIPT]
            for group in slots.values()
            for at in range(0, len(group), RENEWALS_PER_SCRIPT)
        ]

    async def _stretched(self, renewal: Renewal, until: float) -> RenewAnswer:
        """Renew a claim whose slot is being moved.

        Only an exclusive holder can be renewed, by its own key alone.
        """
        why = f"{renewal.resource}: its slot is being moved to another node"
        if renewal.permits is None:
            body = bulk(self._keys.holder(renewal.resource)) + bulk(renewal.id.encode())
            body += bulk(packing.millis(renewal.ttl)) + bulk(packing.new_note(renewal))
            try:
                if await self._stretch(body, max(0.001, until - self._runtime.now())):
                    return Renewed(renewal.ttl)
            except InterlockError as error:
                why = str(error)
        return NoAnswer(why)

    async def _stretch(self, body: bytes, timeout: float) -> bool:
        """Whether a holder was renewed by its own key."""
        return bool(await self._run(STRETCH, body, timeout) == 1)

    async def _servers(self) -> list[Ask]:
        masters = await self._transport.masters(IO_TIMEOUT)
        return [partial(self._ask_at, node) for node in masters]

    async def _ask_at(self, node: HostPort, request: bytes, replies: int = 1) -> Any:
        reply = await self._transport.ask_at(node, request, IO_TIMEOUT, replies)
        if isinstance(reply, ErrorReply):
            raise reply_error(self._label, reply)
        return reply


class ReplicatedClusterStore(ClusterStore, ReplicatedStore):
    """Claims, renewals and writes on a Cluster that count only once enough replicas of their shard have
    them.
    """

    def _renewed(self, batch: Sequence[Renewal], reply: Any) -> list[RenewAnswer]:
        if not isinstance(reply, Unconfirmed):
            return super()._renewed(batch, reply)
        answers = super()._renewed(batch, reply.reply)
        return unconfirmed(batch, answers, reply.confirmed, reply.wanted)

    async def _ask_renewals(
        self, requests: list[tuple[bytes, bytes]], renewals: Sequence[Renewal], timeout: float
    ) -> list[Any]:
        if all(renewal.waiting for renewal in renewals):
            return await super()._ask_renewals(requests, renewals, timeout)
        wait_transport: Any = self._wait_transport
        replies: list[Any] = await wait_transport.ask_all(requests, timeout, self._confirm)
        return replies

    async def _confirm(self, request: bytes, timeout: float) -> tuple[int, bytes]:
        wanted = await self._wanted(request, timeout, True)
        return wanted, wait_command(wanted, replica_timeout(timeout))

    async def _stretch(self, body: bytes, timeout: float) -> bool:
        until = self._runtime.now() + timeout
        wanted = await self._wanted(STRETCH.by_hash + body, timeout, True)
        left = max(0.001, until - self._runtime.now())
        reply, confirmed = await self._run_and_wait(STRETCH, body, left, wanted, replica_timeout(left))
        return bool(reply == 1 and confirmed >= wanted)
