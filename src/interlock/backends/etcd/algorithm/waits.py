"""Waits: a claim first watches, then reads, then sleeps; and reads again after each change.

The read after a change is *serializable*: the member that told of the change answers it by itself, without
asking the leader. That is enough. It has applied the deletion that it told of, and whatever stood ahead of us
was created before we were, so nothing can appear ahead of us later. Only our own key could have been deleted
since, which this member may not know yet: by the end of our session, which our own clock knows in time, or by
an operator, who cannot count on a holder's knowing at once on any store. (Attacked, with a member that is cut
off between event and read: tests/etcd/test_eviction.py. The waiter is let in, and told like an evicted
holder.) If only one claim was ahead of us, no read is needed: the event that tells of its end says as much. A
member that does not have our own key yet, because we came from another one, has not caught up: then the read
is linearizable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from interlock.backends.etcd.algorithm import queue_view
from interlock.backends.etcd.algorithm.claims import post_mark
from interlock.backends.etcd.algorithm.crowd import first_of_ours
from interlock.backends.etcd.algorithm.sessions import Place
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import NotAuthenticated
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire.messages import (
    DOWNWARDS,
    RANGE,
    TXN,
    UPWARDS,
    RangeAnswer,
    TxnAnswer,
    get,
    get_op,
    txn,
)
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.etcd.wire.watching import Watched, WatchGroup
from interlock.backends.kit.deadline import Deadline
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Granted

# Seconds of waiting after which an admission is marked, so that operators see since when a claim holds.
LONG_WAIT_S = 1.0
CLAIMS_LISTED = 100  # claims that are read of the front of a long queue
CONFIRM_TIMEOUT_S = 5.0  # seconds that a server has to confirm a watch
# Seconds before a wait connects again: the first pause; doubled each time, up to the longest.
MIN_PAUSE_S, MAX_PAUSE_S = 0.05, 0.5


async def until_admitted(side: Side, claim: Claim, timeout: float) -> Granted | None:
    """Wait for a turn; the grant, or None if asking again would tell."""
    place = side.sessions.places.get(claim.id)
    if place is None:
        return None  # it was removed meanwhile
    deadline = side.within(timeout)
    if place.crowd and not await first_of_ours(side, claim, place, deadline):
        return None
    try:
        while not deadline.passed():
            connection = await side.connection(max(0.001, deadline.left()))
            if not place.watched:
                done = await _read_queue(side, connection, claim, place, deadline)
                if done is not True:
                    return done or None
            group = await connection.open_watches(
                place.watched, max(connection.least, min(CONFIRM_TIMEOUT_S, deadline.left()))
            )
            try:
                watched = place.watched
                while True:
                    done = await _read_queue(side, connection, claim, place, deadline)
                    if done is not True:
                        return done or None
                    if place.watched != watched:
                        break  # another claim must change first now
                    if not await connection.changed(group, deadline.left()):
                        return None
                    if group.ended or not connection.usable:
                        return None
                    if (granted := _told(side, connection, claim, place, group)) is not None:
                        return granted
            finally:
                connection.close_watches(group)
    except NotAuthenticated:
        return None
    except StoreUnavailable:
        if not deadline.passed():
            raise  # otherwise the time is up, which is an answer too
    return None


def _told(
    side: Side, connection: MemberConnection, claim: Claim, place: Place, group: WatchGroup
) -> Granted | None:
    """The grant, if the event alone tells of it: the only claim ahead has left, and nothing was heard of our
    own key.

    A key is used again. A member that lags behind can tell how an earlier claim left it, which was before
    ours was created.
    """
    if place.next is None or group.hit.keys() != {group.numbers[1]}:
        return None
    if group.hit[group.numbers[1]] <= place.created:
        return None
    return _granted(side, connection, claim, place, place.next)


def _granted(
    side: Side, connection: MemberConnection, claim: Claim, place: Place, own: ClaimKey
) -> Granted | None:
    """The grant of a claim whose turn it is; None if its session has lapsed on our clock."""
    now = side.runtime.now()
    session = side.sessions.of_lease(own.lease, now)
    if session is None:
        return None
    side.sessions.places.pop(claim.id, None)
    if (known := side.sessions.own(claim.id)) is not None:
        known.admitted = True
    if queue_view.marks(claim) or now - place.since > LONG_WAIT_S:
        post_mark(side, connection, claim, own)  # others may wait for this; we do not
    return session.granted(own.token, claim.ttl, now)


async def _read_queue(
    side: Side, connection: MemberConnection, claim: Claim, place: Place, deadline: Deadline
) -> Granted | bool:
    """The grant; True if it still waits, and `place` says for what; False if it is gone or nobody knows."""
    if place.crowd and (done := await _read_ahead(side, connection, claim, place, deadline)) is not None:
        return done
    if queue_view.waits_for_writers(claim):
        return await _read_writers(side, connection, claim, place, deadline)
    folder, mine = side.keys.folder(claim.resource), side.key_of(claim.resource, claim.id)
    found: RangeAnswer | None = None
    for serializable in (True, False):
        alone = queue_view.exclusive(claim)
        request = get(
            *folder,
            limit=3 if alone else 0,
            order=DOWNWARDS if alone else UPWARDS,
            serializable=serializable,
            max_create=place.created,
        )
        found = RangeAnswer.of(
            await connection.call(RANGE, request, max(connection.least, deadline.for_request()))
        )
        if found.header.revision >= place.created:
            break
    assert found is not None
    queue = [ClaimKey(kv) for kv in found.kvs]
    if queue_view.exclusive(claim):
        queue.reverse()
    if not queue or queue[-1].key != mine or queue[-1].created != place.created:
        return False  # we ourselves are gone
    own = queue[-1]
    if len(queue) > 1 if queue_view.exclusive(claim) else not queue_view.is_in(claim, queue):
        if queue_view.exclusive(claim):
            place.watched = tuple(
                Watched(claim_key.key, only_deletions=True) for claim_key in reversed(queue[-2:])
            )
            place.next = own if len(queue) == 2 else None
        else:
            place.watched = queue_view.watched_in(claim, queue, folder)
        return True
    return _granted(side, connection, claim, place, own) or False


async def _read_ahead(
    side: Side, connection: MemberConnection, claim: Claim, place: Place, deadline: Deadline
) -> Granted | bool | None:
    """Look whether those ahead still stand, each by its key; None if they are not known, because it stands
    too far behind.

    Whatever it sorts, the server reads the whole queue. So the front of the queue is read for many hand-offs
    at once.
    """
    crowd = side.sessions.crowd(claim.resource)
    ahead = crowd.ahead_of(place.created)
    if ahead is None:
        request = get(
            *side.keys.folder(claim.resource),
            limit=CLAIMS_LISTED,
            order=UPWARDS,
            serializable=True,
            keys_only=True,
        )
        found = await connection.call(RANGE, request, max(connection.least, deadline.for_request()))
        crowd.front_was((kv.created, kv.key) for kv in RangeAnswer.of(found).kvs)
        ahead = crowd.ahead_of(place.created)
        if ahead is None:
            return None
    mine = side.key_of(claim.resource, claim.id)
    answer: TxnAnswer | None = None
    for serializable in (True, False):
        reads = [get(mine, serializable=serializable)]
        reads += [get(key, serializable=serializable, keys_only=True) for _, key in ahead]
        request = txn([], [get_op(read) for read in reads])
        answer = TxnAnswer(await connection.call(TXN, request, max(connection.least, deadline.for_request())))
        if answer.revision >= place.created:
            break  # it has seen us enter, and so all who came before
    assert answer is not None
    own = [ClaimKey(kv) for kv in answer.ranged(0).kvs]
    if not own or own[0].created != place.created:
        return False  # we ourselves are gone
    found_at = [[kv.created for kv in answer.ranged(n + 1).kvs] for n in range(len(ahead))]
    standing = [one for one, created in zip(ahead, found_at, strict=True) if created == [one[0]]]
    crowd.left(created for created, _ in set(ahead) - set(standing))
    place.ahead = len(standing)
    if not standing:
        return _granted(side, connection, claim, place, own[0]) or False
    place.watched = (Watched(mine, only_deletions=True), Watched(standing[-1][1], only_deletions=True))
    place.next = own[0] if len(standing) == 1 else None
    return True


async def _read_writers(
    side: Side, connection: MemberConnection, claim: Claim, place: Place, deadline: Deadline
) -> Granted | bool:
    """Read the queue for a reader: itself, and all ahead but the other readers."""
    mine = side.key_of(claim.resource, claim.id)
    answer: TxnAnswer | None = None
    for serializable in (True, False):
        ahead = queue_view.writers(
            side.keys, claim.resource, serializable=serializable, max_create=place.created
        )
        request = txn([], [get_op(get(mine, serializable=serializable)), *ahead])
        answer = TxnAnswer(await connection.call(TXN, request, max(connection.least, deadline.for_request())))
        if answer.revision >= place.created:
            break
    assert answer is not None
    own, *others = ([ClaimKey(kv) for kv in answer.ranged(n).kvs] for n in range(3))
    if not own or own[0].created != place.created:
        return False  # we ourselves are gone
    queue = [claim_key for part in others for claim_key in part if claim_key.created < place.created]
    queue.sort(key=lambda claim_key: claim_key.created)
    if queue_view.is_in(claim, [*queue, own[0]]):
        return _granted(side, connection, claim, place, own[0]) or False
    place.watched = queue_view.watched_in(claim, [*queue, own[0]], side.keys.folder(claim.resource))
    return True


async def until_removed(side: Side, claim: Claim, timeout: float) -> None:
    """Wait until a holder's claim is removed, or the time is up."""
    mine = side.key_of(claim.resource, claim.id)

    async def stands(connection: MemberConnection, deadline: Deadline) -> bool:
        answer = await connection.call(RANGE, get(mine), max(connection.least, deadline.for_request()))
        return any(ClaimKey(kv).claim_id == claim.id for kv in RangeAnswer.of(answer).kvs)

    await sleep_while(side, [Watched(mine, only_deletions=True)], stands, timeout)


async def sleep_while(
    side: Side,
    watched: Sequence[Watched],
    same: Callable[[MemberConnection, Deadline], Awaitable[bool]],
    timeout: float,
) -> None:
    """Watch, read, and sleep while that read finds the same, or until the time is up.

    If no server can be reached, it tries again within that time.
    """
    deadline, pause = side.within(timeout), MIN_PAUSE_S
    while deadline.left() > 0.001:
        try:
            connection = await side.connection(deadline.left())
            group = await connection.open_watches(
                watched, max(connection.least, min(CONFIRM_TIMEOUT_S, deadline.left()))
            )
            try:
                while await same(connection, deadline) and not deadline.passed():
                    await connection.changed(group, deadline.left())
                    if not connection.usable:
                        break  # what it did not tell is seen on the next one
                    if group.ended:
                        return
                else:
                    return
            finally:
                connection.close_watches(group)
        except NotAuthenticated:
            return
        except StoreUnavailable:
            pass  # whoever waits has time: the next connection shows what has changed
        if side.transport.closed:
            return
        await side.transport.pause(max(0.0, min(pause, deadline.left())))
        pause = min(MAX_PAUSE_S, 2 * pause)
