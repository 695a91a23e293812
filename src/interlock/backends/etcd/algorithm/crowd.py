"""The waiters of one client on one resource, when they are many: a crowd.

A claim that enters a long queue does not read who is ahead of it, and only the first of a crowd reads and
watches; the others sleep until it has left. One of them asks for the holder, whom messages name, and tells
the others.
"""

from __future__ import annotations

from interlock.backends.etcd.algorithm import queue_view
from interlock.backends.etcd.algorithm.sessions import OwnClaim, Place, Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import RANGE, RangeAnswer, get
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.kit.deadline import Deadline
from interlock.model import Busy, Claim, Standing

# Seconds after which a waiter behind another one of its client checks whether that is still so.
ROUSED_S = 10.0


def enter_crowd(
    side: Side, session: Session, held: OwnClaim, claim: Claim, created: int, ahead: int, since: float
) -> Busy:
    """The answer for a claim that has entered a long queue: it waits, behind our own waiters if there are
    any.
    """
    held.stands(created, side.runtime.now())
    if session.over:
        raise LeaseNotFound("another caller has found out meanwhile")
    place = Place(created, ahead, (), since, crowd=True)
    return Busy(place.ahead, queue_view.RECHECK_PERIOD_S, side.sessions.join_crowd(held, claim.id, place))


async def still_in_crowd(
    side: Side, held: OwnClaim, claim: Claim, known: Place, deadline: Deadline
) -> Busy | None:
    """The answer for a claim of a crowd that asks again and still stands; None if it does not, or nobody
    knows.

    Whether it is its turn, the wait that follows finds out.
    """
    answer = await side.call(RANGE, get(held.key), deadline, low_priority=True)
    found = [ClaimKey(kv) for kv in RangeAnswer.of(answer).kvs]
    if not found or found[0].created != known.created or found[0].claim_id != claim.id:
        return None
    if side.sessions.of_lease(found[0].lease, side.runtime.now()) is not held.session:
        return None
    return Busy(known.ahead, queue_view.RECHECK_PERIOD_S, await _ask_for_holder(side, claim, deadline))


async def first_of_ours(side: Side, claim: Claim, place: Place, deadline: Deadline) -> bool:
    """Sleep while another claim of this client is ahead, which must leave before; False if the time is up,
    or our place is gone.
    """
    sessions, runtime = side.sessions, side.runtime
    while sessions.places.get(claim.id) is place:
        called = sessions.behind_ours(claim.resource, claim.id, runtime.signal)
        if called is None:
            return True
        if deadline.passed():
            return False
        await runtime.wait(called, min(deadline.left(), ROUSED_S))
    return False


async def _ask_for_holder(side: Side, claim: Claim, deadline: Deadline) -> Standing | None:
    """The holder that a crowd waits for.

    It is only named in messages, so one waiter of the crowd asks for all of them.
    """
    crowd, now = side.sessions.crowd(claim.resource), side.runtime.now()
    recent, holder = crowd.holder(now)
    if recent or not await side.sessions.take_lead(("holder", claim.resource), side.runtime, deadline.left()):
        return crowd.holder(now)[1]
    try:
        request = get(*side.keys.folder(claim.resource), limit=1, order=messages.UPWARDS, serializable=True)
        for kv in (await side.range(request, deadline)).kvs:
            first = ClaimKey(kv)
            holder = first.standing(claim.capacity, True, first.ttl)
        crowd.told(holder, now)
        return holder
    finally:
        side.sessions.finished(("holder", claim.resource))
