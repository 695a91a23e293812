"""Enters claims: each is one Txn. How they leave: see `releases`.

    compare   the claim was not evicted or taken back, and nothing stands there at all
    then      put the key under the session's lease: it is granted
    else      compare   the claim was not evicted or taken back, its key does not exist;
                        unless it queues: nothing stands there
              then      put the key under the session's lease, and read the queue, unless it is long
              else      read the reason, and the queue

The revision at which the key is created is the place in the queue, and the token. A Txn with a put goes
through raft, so the read in it is up to date and shows the claim itself. Repeating a claim after a lost
answer finds its own key.

To sort a queue, the server reads all of it, on every member. A claim that has just entered is behind all
others: if it shares with nobody, it waits, and need not know for whom. It reads a few keys and how many there
are, and the wait finds out the rest (see `waits`).

A key is used again by the next claim of the same client (see `key_names`). So whatever is read at a key
belongs to a claim only if the id in its value is that claim's, and every deletion compares the revision of
the creation, if it is known. If it is not, because an answer is missing, the key is never used again.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import NamedTuple

from interlock._support.record import record
from interlock.backends.etcd.algorithm import queue_view
from interlock.backends.etcd.algorithm.crowd import enter_crowd, still_in_crowd
from interlock.backends.etcd.algorithm.keeping import COMMIT_S, session_for
from interlock.backends.etcd.algorithm.queue_view import QueueView
from interlock.backends.etcd.algorithm.sessions import OwnClaim, Place, Session, Sessions
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import (
    TxnAnswer,
    compare_create_revision,
    compare_mod_revision,
    delete_op,
    get,
    get_op,
    none_since,
    nothing_in,
    put,
    put_op,
    txn,
    txn_op,
)
from interlock.backends.etcd.wire.template import blank, cut
from interlock.backends.etcd.wire.values import ClaimKey, claim_value, encoded, eviction
from interlock.backends.kit.deadline import Deadline
from interlock.errors import HeldUp, InterlockError, SettingsMismatch, StoreUnavailable, StoreUnfit, Unreached
from interlock.model import EVERYTHING, Busy, Claim, ClaimAnswer, Gone

MAX_FLOOR = 2**62  # tokens above it still fit into 63 bits, as guards compare them
MAX_SESSIONS_TRIED = 4  # sessions that may end under one claim before it counts as unavailable


class _Again(Exception):
    """Something in the way was removed: the claim is to be sent again."""


async def claim(side: Side, asked_for: Claim, timeout: float) -> ClaimAnswer:
    began = side.runtime.now()
    deadline = await side.begin(timeout)
    if asked_for.id not in side.sessions.places:  # later the answer "too late" is as good: it has waited
        deadline.at += max(0.0, COMMIT_S - timeout)
        if asked_for.id not in side.sessions.unanswered:
            side.give_time_at_once(deadline, began, timeout)
    new, unanswered = side.sessions.own(asked_for.id) is None, asked_for.id in side.sessions.unanswered
    for attempt in range(MAX_SESSIONS_TRIED):
        session = await session_for(side, asked_for.ttl, deadline)
        held = side.sessions.enter(
            session, asked_for.resource, asked_for.id, reader=queue_view.reader(asked_for)
        )
        try:
            return await _claim(side, session, held, asked_for, deadline)
        except LeaseNotFound:
            side.sessions.lose(session)
        except _Again:
            pass
        except SettingsMismatch:
            side.sessions.leave(asked_for.id)
            raise
        except Unreached as error:
            if isinstance(error, HeldUp) and unanswered and not attempt:
                raise  # the caller knows of the earlier try, which may have had an effect
            if attempt or not held.answered:  # the last try had no effect, and an earlier one may have had
                raise StoreUnavailable(str(error)) from error
            if new:
                side.sessions.leave(asked_for.id, again=True)
            raise
        except BaseException:
            side.sessions.leave_unanswered(asked_for.id)
            raise
        finally:
            held.asking = False
    raise StoreUnavailable(f"{side.label}: the client's session ended again and again")


async def _claim(
    side: Side, session: Session, held: OwnClaim, claim: Claim, deadline: Deadline
) -> ClaimAnswer:
    known, asked, floor = side.sessions.places.get(claim.id), side.runtime.now(), side.sessions.floor
    if known is not None and known.crowd:
        waits = await still_in_crowd(side, held, claim, known, deadline)
        if waits is not None:
            return waits
    if known is not None or (claim.queued and held.name.number):
        # The comparison that nobody stands there reads all who do; and where we have another claim, somebody
        # does.
        return await _enter(side, session, held, claim, known, None, asked, deadline)
    request = _quick_request(side, session, held, claim, floor)
    answer = await side.txn(request, deadline, unsure=lambda: side.sessions.leave_unanswered(claim.id))
    if not answer.succeeded:
        return await _enter(side, session, held, claim, None, answer.nested(0), asked, deadline)
    created = answer.revision  # nobody stood in its way: its key was created by this Txn
    held.stands(created, side.runtime.now())
    if session.over:
        raise LeaseNotFound("another caller has found out meanwhile")
    held.admitted = True
    return session.granted(created + floor[1], claim.ttl, asked)


async def _enter(
    side: Side,
    session: Session,
    held: OwnClaim,
    claim: Claim,
    known: Place | None,
    answer: TxnAnswer | None,
    asked: float,
    deadline: Deadline,
) -> ClaimAnswer:
    """Enter a claim that others stand in the way of, or find it standing. The inner Txn does this; its first
    `answer` may be there.

    Long because each answer of the Txn leads to one of these ways, and their order matters.
    """
    alone: bytes | None = None
    folder: tuple[bytes, bytes] = side.keys.folder(claim.resource)
    while True:
        if answer is None:
            asked = side.runtime.now()
            request = _request(side, session, held, claim, known.created if known else 0, alone)
            answer = await side.txn(
                *(request, deadline),
                low_priority=held.name.number > 0,  # we have other claims there
                unsure=lambda: side.sessions.leave_unanswered(claim.id),
            )
        if (gone := _gone(side, claim, answer)) is not None:
            return gone
        seen = _seen(claim, answer)
        if seen.unread:
            return enter_crowd(side, session, held, claim, answer.revision, seen.count - 1, asked)
        # A long queue, and it may be a semaphore's: read its front.
        if answer.succeeded and not seen.front:
            known = Place(answer.revision, seen.count - 1, (), asked)
            answer = None  # and ask again
            continue
        own = seen.own(held.key, claim.id)
        found = None if answer.succeeded or own is not None else _at_key(claim, answer)
        await _check_capacity(side, claim, seen, own or _if_of(claim, found), deadline)
        if own is not None:
            return await _standing(side, session, held, claim, _Stands(seen, own, answer, asked), deadline)
        if found is not None:
            await _make_way(side, held, claim, found, seen, asked, deadline)
            raise _Again
        if known is not None:
            # It entered again behind the end of what was read; its old place is no place of it any more.
            side.sessions.places.pop(claim.id, None)
            raise _Again
        if not _floor_moved(side, claim, answer):
            if not seen.fits(claim):
                side.sessions.leave(claim.id, again=True)  # it left no trace
                return seen.busy(claim, seen.count)
            # It fits as long as nobody enters after this read.
            alone = none_since(*folder, answer.revision)
        answer = None


def _seen(claim: Claim, answer: TxnAnswer) -> QueueView:
    if queue_view.waits_for_writers(claim):
        return QueueView.of_reader(claim, answer)
    return QueueView.on_entering(claim, answer) if answer.succeeded else QueueView.of(answer, 1)


def _request(
    side: Side,
    session: Session,
    held: OwnClaim,
    claim: Claim,
    created: int,
    alone: bytes | None,
) -> bytes:
    """The inner Txn of a claim: it did not enter at once, or it has waited. See the head of this file."""
    keys, (since, above) = side.keys, side.sessions.floor
    folder = keys.folder(claim.resource)
    if not claim.queued:
        alone = alone or nothing_in(*folder)
    if queue_view.waits_for_writers(claim):
        entered, reads = queue_view.reads_of_reader(keys, claim.resource, held.key)
    else:
        entered = queue_view.reads_on_entering(claim.permits, claim.capacity, claim.queued, folder)
        reads = queue_view.queue_reads(claim, folder, created)
    entering = Entering(keys, held.key, claim_value(claim, above), session.lease, keys.gone(claim.id), since)
    return entering.txn(entered, reads, alone)


@record
class Entering:
    """A claim as its Txn puts it: under which key, with which value, and what must be so.

    The floor is a part of that: a client that does not know of a new one would draw tokens below those of the
    others.
    """

    keys: Keys
    key: bytes
    value: bytes
    lease: int
    gone: bytes  # the key of its tombstone
    floor_revision: int

    def conditions(self) -> list[bytes]:
        return [
            compare_create_revision(self.gone, 0),
            compare_mod_revision(self.keys.floor, self.floor_revision),
        ]

    def put(self) -> bytes:
        return put_op(put(self.key, self.value, self.lease))

    def txn(self, entered: list[bytes], reads: list[bytes], alone: bytes | None) -> bytes:
        """Enter if nothing stands at the key, and read `entered`; otherwise read `reads`, and what is in the
        way. `alone` is one more condition.
        """
        compare = [*self.conditions(), compare_create_revision(self.key, 0), *([alone] if alone else [])]
        otherwise = [
            get_op(get(self.gone)),
            *reads,
            get_op(get(self.keys.floor)),
            get_op(get(self.key)),
        ]
        return txn(compare, [self.put(), *entered], otherwise)


def _quick_request(
    side: Side, session: Session, held: OwnClaim, claim: Claim, floor: tuple[int, int]
) -> bytes:
    """The whole Txn of a claim.

    From one claim to the next, only its tombstone's name and its value differ.
    """
    keys, gone, value = side.keys, side.keys.gone(claim.id), claim_value(claim, floor[1])
    form = ClaimForm(
        *(keys, claim.resource, held.name.key, session.lease, floor[0]),
        *(claim.permits, claim.capacity, claim.queued, len(gone), len(value)),
    )
    start, to_value, to_gone, to_value_again, to_gone_again, end = _quick_parts(form)
    return b"".join(
        (start, gone, to_value, value, to_gone, gone, to_value_again, value, to_gone_again, gone, end)
    )


class ClaimForm(NamedTuple):
    """All that decides what the Txn of a claim looks like, but its tombstone's name and its value.

    A tuple, because it is the key of a cache that each claim asks.
    """

    keys: Keys
    resource: str
    key: bytes
    lease: int
    floor_revision: int
    permits: int
    capacity: int
    queued: bool
    gone_size: int
    value_size: int


@lru_cache(maxsize=1024)
def _quick_parts(form: ClaimForm) -> list[bytes]:
    """The Txn of a claim around its tombstone's name and its value, which it has three times and twice."""
    gone, value = blank(0, form.gone_size), blank(1, form.value_size)
    folder = form.keys.folder(form.resource)
    nothing = nothing_in(*folder)
    if form.queued and form.permits == 1 and form.capacity == EVERYTHING:
        entered, reads = queue_view.reads_of_reader(form.keys, form.resource, form.key)
    else:
        reads = queue_view.queue_reads_for(form.permits, form.capacity, folder)
        entered = queue_view.reads_on_entering(form.permits, form.capacity, form.queued, folder)
    entering = Entering(form.keys, form.key, value, form.lease, gone, form.floor_revision)
    inner = entering.txn(entered, reads, None if form.queued else nothing)
    return cut(txn([*entering.conditions(), nothing], [entering.put()], [txn_op(inner)]), gone, value)


def _gone(side: Side, claim: Claim, answer: TxnAnswer) -> Gone | None:
    """The answer for a claim that was evicted or taken back."""
    removed = [] if answer.succeeded else answer.ranged(0).kvs
    if not removed:
        return None
    side.sessions.leave(claim.id)
    reason = eviction(removed[0].value)
    return Gone() if reason is None else Gone(True, reason)


def _after_queue(claim: Claim) -> int:
    """The index of the first part of a refused answer after the tombstone and the reads of the queue: the
    floor is there, and what stands at the claim's key is the next.
    """
    return 4 if queue_view.waits_for_writers(claim) else 3


def _floor_moved(side: Side, claim: Claim, answer: TxnAnswer) -> bool:
    """Whether an operator has set another floor for tokens since it was read; it is known from now on."""
    kvs = answer.ranged(_after_queue(claim)).kvs
    try:
        found = (kvs[0].modified, int(kvs[0].value)) if kvs else (0, 0)
    except ValueError:
        raise StoreUnfit(f"{side.label}: {side.keys.floor.decode()} must hold a whole number") from None
    if not 0 <= found[1] < MAX_FLOOR:
        raise StoreUnfit(
            f"{side.label}: {side.keys.floor.decode()} must hold a number between 0 and 2^62, as "
            f"microseconds since 1970 are, not one of {len(str(found[1]))} digits"
        )
    moved, side.sessions.floor = found != side.sessions.floor, found
    return moved


def _at_key(claim: Claim, answer: TxnAnswer) -> ClaimKey | None:
    """The claim key that stands at the key of a claim that has not entered; None if there is none."""
    kvs = answer.ranged(_after_queue(claim) + 1).kvs
    return ClaimKey(kvs[0]) if kvs else None


def _if_of(claim: Claim, found: ClaimKey | None) -> ClaimKey | None:
    return found if found is not None and found.claim_id == claim.id else None


async def _make_way(
    side: Side,
    held: OwnClaim,
    claim: Claim,
    found: ClaimKey,
    seen: QueueView,
    asked: float,
    deadline: Deadline,
) -> None:
    """Prepare the next try of a claim that has not entered because something stands at its key.

    If it is the claim itself, it stands between the front and the end of what was read: the next read ends at
    it. Otherwise it is an earlier claim of this client: one that lingers, or one whose request arrived after
    it was given up. Nobody owns the latter.
    """
    sessions = side.sessions
    if found.claim_id == claim.id:
        sessions.places[claim.id] = Place(found.created, seen.count - 1, (), asked)
        return
    if sessions.of_lease(found.lease, asked) is not None and sessions.own(found.claim_id) is None:
        await _delete(side, found, deadline)
    sessions.places.pop(claim.id, None)
    sessions.move(held, claim.id)


async def _check_capacity(
    side: Side, claim: Claim, seen: QueueView, own: ClaimKey | None, deadline: Deadline
) -> None:
    try:
        seen.check_capacity(claim)
    except SettingsMismatch:
        if own is not None:
            await _delete(side, own, deadline)  # it has entered: the one withdrawal that is left
        raise


async def _delete(side: Side, found: ClaimKey, deadline: Deadline) -> None:
    """Delete a key, if it is still the one that was found."""
    await side.txn(txn([compare_create_revision(found.key, found.created)], [delete_op(found.key)]), deadline)


class _Stands(NamedTuple):
    """A claim that stands in the queue, and the Txn that has shown it."""

    seen: QueueView
    own: ClaimKey
    answer: TxnAnswer
    asked: float


async def _standing(
    side: Side,
    session: Session,
    held: OwnClaim,
    claim: Claim,
    found: _Stands,
    deadline: Deadline,
) -> ClaimAnswer:
    """The answer for a claim whose key stands in the queue."""
    sessions, (seen, own, answer, asked) = side.sessions, found
    if own.lease != session.lease:
        ours = sessions.of_lease(own.lease, asked)
        if ours is None:  # a remnant of a session that has ended: nobody keeps it
            await _delete(side, own, deadline)
            sessions.places.pop(claim.id, None)
            raise _Again
        session = ours
        sessions.enter(session, claim.resource, claim.id)
    held.stands(own.created, side.runtime.now())
    if session.over:
        raise LeaseNotFound("another caller has found out meanwhile")
    place = seen.place(own.key)
    if place is not None and seen.fits(claim, place):
        waited = sessions.places.pop(claim.id, None)
        # If it entered before this Txn, somebody may have come behind it, also if its caller has never heard
        # that it waits.
        if waited is not None or (queue_view.marks(claim) and not answer.succeeded):
            await _mark(side, claim, own, deadline)
        held.admitted = True
        return session.granted(own.token, claim.ttl, asked)
    return _waits(side, session, held, claim, found)


def _waits(side: Side, session: Session, held: OwnClaim, claim: Claim, found: _Stands) -> Busy:
    """The answer for a claim that stands and is not let in."""
    seen, own, answer, asked = found
    sessions, place = side.sessions, seen.place(own.key)
    before = sessions.places.get(claim.id)
    ahead = seen.count - 1 if place is None else place
    if place is None and before is not None and not answer.succeeded:
        ahead = min(before.ahead, ahead)
    since = asked if before is None else before.since
    if place is None and claim.queued and queue_view.exclusive(claim):
        return enter_crowd(side, session, held, claim, own.created, ahead, since)
    watched = seen.watched(claim, own, side.keys.folder(claim.resource))
    following = own if place == 1 and queue_view.exclusive(claim) else None
    sessions.places[claim.id] = Place(own.created, ahead, watched, since, following)
    return seen.busy(claim, ahead)


def mark(own: ClaimKey) -> bytes:
    """The Txn by which a claim that has waited says when it was admitted; for operators, and for those who
    watch it.
    """
    said = {**(own.said or {}), "admitted": round(time.time(), 3)}
    return txn(
        [compare_create_revision(own.key, own.created), compare_mod_revision(own.key, own.modified)],
        [put_op(put(own.key, encoded(said), keep_lease=True))],
    )


async def _mark(side: Side, claim: Claim, own: ClaimKey, deadline: Deadline) -> None:
    if own.said is not None and "admitted" not in own.said:
        if queue_view.marks(claim):
            side.sessions.let_in[claim.id] = own
        try:
            await side.txn(mark(own), deadline)
            side.sessions.let_in.pop(claim.id, None)
        except InterlockError:
            pass  # a convenience, unless others wait for it: then it is repeated


def post_mark(side: Side, connection: MemberConnection, claim: Claim, own: ClaimKey) -> None:
    """Say that a claim was let in, without waiting for the answer.

    If others may wait for that, it is repeated until it is answered.
    """
    if own.said is None:
        return
    if not queue_view.marks(claim):
        connection.post(messages.TXN, mark(own))
        return
    side.sessions.let_in[claim.id] = own
    connection.post(messages.TXN, mark(own), lambda: side.sessions.let_in.pop(claim.id, None))


def post_marks_again(sessions: Sessions, connection: MemberConnection) -> None:
    """Repeat on a new connection what may have got lost with the one before it."""
    for id, own in list(sessions.let_in.items()):
        connection.post(messages.TXN, mark(own), partial(sessions.let_in.pop, id, None))


async def mark_again(side: Side, deadline: Deadline) -> None:
    """Repeat it for all whose answer has not been seen.

    Called by the keeper: nobody else may have anything to send.
    """
    for id, own in list(side.sessions.let_in.items()):
        if deadline.passed():
            return
        await side.txn(mark(own), deadline)
        side.sessions.let_in.pop(id, None)
