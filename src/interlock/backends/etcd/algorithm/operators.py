"""Calls of operators: they inspect a queue, list names, evict claims and watch for changes."""

from __future__ import annotations

import secrets

from interlock._core.admission import admitted
from interlock._core.outline import outline
from interlock.backends.etcd.algorithm.keeping import tombstone_lease
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.algorithm.waits import sleep_while
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.keys import escaped
from interlock.backends.etcd.wire.messages import (
    TIME_TO_LIVE,
    UPWARDS,
    LeaseAnswer,
    compare_create_revision,
    delete_op,
    get,
    get_op,
    put,
    put_op,
    txn,
)
from interlock.backends.etcd.wire.protobuf import MalformedMessage
from interlock.backends.etcd.wire.values import ClaimKey, evicted
from interlock.backends.etcd.wire.watching import Watched
from interlock.backends.kit.deadline import Deadline
from interlock.errors import ForeignKey, StoreUnavailable, Unreached
from interlock.model import NEVER, Queue, Standing

MAX_LEASES_ASKED = 8  # leases whose remaining time is asked for; of others, their whole ttl is shown
KEYS_PER_PAGE = 1000  # keys read at a time


async def inspect(
    side: Side, resource: str, timeout: float, *, limit: int | None = None, lapses: bool = True
) -> Queue:
    deadline = await side.begin(timeout)
    request = get(*side.keys.folder(resource), limit=limit or 0, order=UPWARDS)
    claim_keys = [ClaimKey(kv) for kv in (await side.range(request, deadline)).kvs]
    return await _queue(side, resource, claim_keys, deadline, lapses)


async def _queue(
    side: Side, resource: str, claim_keys: list[ClaimKey], deadline: Deadline, lapses: bool
) -> Queue:
    if not claim_keys:
        return Queue(resource, 0, ())
    capacity = _capacity(claim_keys)
    inside = admitted([claim_key.permits(capacity) for claim_key in claim_keys], capacity)
    left: dict[int, float] = {0: NEVER}
    for claim_key in claim_keys:
        if lapses and claim_key.lease not in left and len(left) <= MAX_LEASES_ASKED:
            request = messages.of_lease(claim_key.lease)
            answer = LeaseAnswer(await side.call(TIME_TO_LIVE, request, deadline))
            left[claim_key.lease] = (
                answer.ttl + 1.0
            )  # it tells whole seconds, cut off: this is an upper bound
    standings = [
        claim_key.standing(capacity, index < inside, max(0.0, left.get(claim_key.lease, claim_key.ttl)))
        for index, claim_key in enumerate(claim_keys)
    ]
    return Queue(resource, capacity, tuple(standings))


def _capacity(claim_keys: list[ClaimKey]) -> int:
    """The capacity that the first claim of ours has; 1 if only strangers stand there."""
    return next((claim_key.capacity for claim_key in claim_keys if claim_key.capacity is not None), 1)


async def scan(side: Side, prefix: str, after: str, limit: int, timeout: float) -> list[str]:
    """Names in the order of code points, which is not the order of the keys: all under the prefix are
    read.
    """
    deadline = await side.begin(timeout)
    start = side.keys.root + escaped(prefix)
    end = start[:-1] + bytes((start[-1] + 1,)) if prefix else side.keys.root_end
    names: set[str] = set()
    more = True
    while more:
        deadline = side.within(timeout)  # for each page: there may be many
        answer = await side.range(get(start, end, limit=KEYS_PER_PAGE, keys_only=True), deadline)
        before = start
        for kv in answer.kvs:
            name, start = side.keys.resource_of(kv.key)
            if name is not None and b"/" in kv.key[len(side.keys.root) :]:
                names.add(name)
        more = answer.more
        if more and start <= before:
            raise MalformedMessage("a list of keys does not go on")
    return sorted(name for name in names if name.startswith(prefix) and name > after)[:limit]


async def evict(
    side: Side, resource: str, id: str | None, reason: str, foreign: bool, no_expiry: bool, timeout: float
) -> list[Standing]:
    deadline = await side.begin(timeout)
    request = get(*side.keys.folder(resource), order=UPWARDS)
    claim_keys = [ClaimKey(kv) for kv in (await side.range(request, deadline)).kvs]
    queue = await _queue(side, resource, claim_keys, deadline, False)
    victims = [
        (claim_key, standing)
        for claim_key, standing in zip(claim_keys, queue.standings, strict=True)
        if (standing.admitted if id is None else standing.id == id)
    ]
    for claim_key, _ in victims:
        if claim_key.foreign and not (foreign and (claim_key.lease or no_expiry)):
            raise ForeignKey(resource, "string", expires=bool(claim_key.lease))
    removed: list[Standing] = []
    call = secrets.token_hex(8)
    for number, (claim_key, standing) in enumerate(victims):
        try:
            if await _evicted(side, claim_key, reason, f"{call}-{number}", side.within(timeout)):
                removed.append(standing)
        except Unreached as error:
            if not removed:
                raise
            raise StoreUnavailable(str(error)) from None  # some were evicted before
    return removed


async def _evicted(side: Side, victim: ClaimKey, reason: str, call: str, deadline: Deadline) -> bool:
    """Remove one key, if it is still the one that was seen, and leave the reason for its owner.

    `call` is the id of this removal. It is left as well, so that a repetition after a lost answer is told
    that it was done.
    """
    try:
        return await _removed(side, victim, reason, call, deadline)
    except LeaseNotFound:  # the lease for tombstones was revoked by somebody, so nothing was done
        side.sessions.tombstone_lease = None
        return await _removed(side, victim, reason, call, deadline)


async def _removed(side: Side, victim: ClaimKey, reason: str, call: str, deadline: Deadline) -> bool:
    done = side.keys.eviction(call)
    lease = await tombstone_lease(side, deadline, 0.0 if victim.foreign else victim.ttl)
    then = [delete_op(victim.key), put_op(put(done, b"", lease))]
    if not victim.foreign:
        then.append(put_op(put(side.keys.gone(victim.claim_id), evicted(reason), lease)))
    otherwise = [get_op(get(done))]
    answer = await side.txn(
        txn([compare_create_revision(victim.key, victim.created)], then, otherwise), deadline
    )
    return answer.succeeded or bool(answer.ranged(0).kvs)


async def watch(side: Side, seen: Queue, timeout: float) -> None:
    """Wait until a queue differs from what was seen, or the time is up."""
    before = outline(seen)

    async def same(connection: MemberConnection, deadline: Deadline) -> bool:
        found = await inspect(side, seen.resource, deadline.for_request(), lapses=False)
        return outline(found) == before

    await sleep_while(side, [Watched(*side.keys.folder(seen.resource))], same, timeout)
