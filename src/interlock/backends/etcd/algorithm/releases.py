"""Removes claims: each is one Txn. How they enter: see `claims`.

A key is used again by the next claim of the same client (see `key_names`). So every deletion compares the
revision of the creation, if it is known. If it is not, because an answer is missing, the key is never used
again.
"""

from __future__ import annotations

import math
from functools import lru_cache

from interlock.backends.etcd.algorithm.keeping import grant_lease, tombstone_lease
from interlock.backends.etcd.algorithm.sessions import Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import (
    compare_create_revision,
    compared,
    delete_op,
    get,
    put,
    put_op,
    txn,
)
from interlock.backends.etcd.wire.template import blank, cut
from interlock.backends.etcd.wire.values import RELEASED, ClaimKey, encoded
from interlock.backends.kit.deadline import Deadline
from interlock.errors import StoreUnfit


async def release(side: Side, resource: str, id: str, linger: float, timeout: float) -> bool:
    deadline = await side.begin(timeout, connecting_is_extra=False)
    if linger > 0:
        kept = await _linger(side, resource, id, linger, deadline)
        if kept is not None:
            return kept
    own, unanswered = side.sessions.own(id, resource), id in side.sessions.unanswered
    if own is None and not unanswered:
        return await _release_others(side, resource, id, deadline)
    mine = side.keys.claim(resource, id) if own is None else own.name.key
    created = 0 if own is None else own.created
    removal = _removal(side, id, mine, created)
    if unanswered:
        try:
            lease = await tombstone_lease(side, deadline)
            removal += txn([], [put_op(put(side.keys.gone(id), RELEASED, lease))])
        except StoreUnfit:
            pass  # a full server still deletes
    unsure: list[bool] = []  # a try that had no answer may have removed it: then it is gone by our own doing
    try:
        answer = await side.txn(removal, deadline, unsure=lambda: unsure.append(True))
    except BaseException:
        unsure.append(True)
        raise
    finally:
        if own is not None and unsure:
            own.answered = False
    # What was compared at a known revision was there.
    removed = bool(unsure) or (answer.succeeded and (created > 0 or answer.deleted(0) == 1))
    side.sessions.leave(id, again=created > 0)
    return removed


def _removal(side: Side, id: str, mine: bytes, created: int) -> bytes:
    """The Txn that deletes a claim unless it was evicted; more may be appended, as its fields repeat."""
    gone = side.keys.gone(id)
    start, end = _removal_parts(mine, len(gone))
    # If it is not known, an answer is missing, and no later claim ever stands there.
    compare = compared(compare_create_revision(mine, created)) if created else b""
    return b"".join((start, gone, end, compare))


@lru_cache(maxsize=1024)
def _removal_parts(mine: bytes, gone_size: int) -> list[bytes]:
    gone = blank(0, gone_size)
    return cut(txn([compare_create_revision(gone, 0)], [delete_op(mine)]), gone)


async def _release_others(side: Side, resource: str, id: str, deadline: Deadline) -> bool:
    """Remove a claim of another client: a condition notifies its waiters so."""
    found = await side.range(get(*side.keys.folder(resource)), deadline)
    for claim_key in (ClaimKey(kv) for kv in found.kvs):
        if claim_key.id == id:
            compare = [
                compare_create_revision(side.keys.gone(id), 0),
                compare_create_revision(claim_key.key, claim_key.created),
            ]
            answer = await side.txn(txn(compare, [delete_op(claim_key.key)]), deadline, again=False)
            return answer.succeeded
    return False


async def _linger(side: Side, resource: str, id: str, linger: float, deadline: Deadline) -> bool | None:
    """Move a holder's claim under a lease of its own, which lapses after `linger` seconds. None: it does not
    hold.

    The key keeps its place and its token, and outlives the client. The tombstone keeps it from being renewed
    or released again.
    """
    folder, gone = side.keys.folder(resource), side.keys.gone(id)
    found = await side.range(get(*folder, order=messages.UPWARDS), deadline)
    claim_keys = [ClaimKey(kv) for kv in found.kvs]
    index = next((index for index, claim_key in enumerate(claim_keys) if claim_key.claim_id == id), None)
    if index is None:
        side.sessions.leave(id)
        return False
    own = claim_keys[index]
    if own.said is None or own.said.get("lingering"):
        return False
    queue = claim_keys[: index + 1]
    capacity = own.capacity or 1
    if sum(claim_key.permits(capacity) for claim_key in queue) > capacity:
        return None
    ttl = max(1, math.ceil(linger))
    lease, _ = await grant_lease(side, ttl, deadline)
    said = {**own.said, "lingering": True, "ttl": float(ttl)}
    answer = await side.txn(
        txn(
            [compare_create_revision(gone, 0), compare_create_revision(own.key, own.created)],
            [put_op(put(own.key, encoded(said), lease)), put_op(put(gone, RELEASED, lease))],
        ),
        deadline,
        again=False,
    )
    side.sessions.leave(id, again=answer.succeeded)  # it is in the way until it lapses: see `_make_way`
    return answer.succeeded


async def withdraw(side: Side, session: Session, key: bytes, deadline: Deadline) -> None:
    """Delete what stands at a key under our lease, if no claim of this client is there.

    The key was listed a moment ago, and may be another claim's by now: so what stands there is read first,
    and compared.
    """
    for kv in (await side.range(get(key), deadline)).kvs:
        found = ClaimKey(kv)
        own = side.sessions.own(found.claim_id)
        if found.lease == session.lease and (own is None or own.key != key):
            await side.txn(txn([compare_create_revision(key, found.created)], [delete_op(key)]), deadline)
