"""Begins sessions, keeps them alive, and ends them.

What counts as kept: a keep-alive is answered by whichever server believes that it leads. A leader that was
frozen, and has been replaced meanwhile, still believes so for a moment after it wakes up. Therefore a
keep-alive counts only once a Txn that goes through the log, sent after its answer on the same connection, was
answered in the same raft term, and the member had told that term before the keep-alive was sent. A term has
one leader, and a majority accepted its entry after the keep-alive; so it led while it answered. A
linearizable read proves less: before etcd 3.4.42, 3.5.28 and 3.6.9, a deposed leader can confirm one (etcd
20418, staged in tests/etcd/test_stale_read.py).
"""

from __future__ import annotations

import secrets
import time

from interlock.backends.etcd.algorithm.sessions import KEPT_PART, Session, step
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import (
    LeaseExists,
    LeaseNotFound,
    NotAuthenticated,
    NotProcessed,
    OldRevision,
    Refused,
)
from interlock.backends.etcd.transport.cluster import PAUSE_S
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import LeaseAnswer, TxnAnswer
from interlock.backends.kit.deadline import Deadline
from interlock.errors import InterlockError, StoreUnavailable

# Seconds that a commit has at least: it waits for the disks of a majority, however little time the caller
# has.
COMMIT_S = 0.25
TOMBSTONE_LEASE_TTL_S = 120  # seconds that the lease for tombstones and deleted registers lives,
TOMBSTONE_LEASE_USED_S = 58.0  # and seconds for which it is used: so each of them stays for at least a minute


def fresh_lease() -> int:
    """An id of ours for a lease: 62 random bits."""
    return secrets.randbits(62) | 1


async def grant_lease(side: Side, ttl: int, deadline: Deadline) -> tuple[int, float]:
    """A new lease and its ttl.

    The id is ours, so the request may be repeated: if the lease exists, an earlier try was carried out.
    """
    lease, unsure = fresh_lease(), list[bool]()
    try:
        answer = await side.transport.call(
            messages.GRANT, messages.grant(ttl, lease), deadline, unsure=lambda: unsure.append(True)
        )
    except LeaseExists:
        if not unsure:
            raise
        return lease, float(ttl)
    granted = LeaseAnswer.of_grant(answer)
    return granted.lease, float(granted.ttl)


async def session_for(side: Side, ttl: float, deadline: Deadline) -> Session:
    """A live session for a claim with this ttl, of which enough is left."""
    while True:
        now = side.runtime.now()
        session = side.sessions.current(ttl)
        if session is not None and session.lapsed(now):
            await forsake(side, session, deadline)
            continue
        if session is not None and session.kept + session.ttl - KEPT_PART * min(ttl, session.ttl) >= now:
            return session
        timeout = deadline.left() + min(deadline.connecting, COMMIT_S)
        if not await side.sessions.take_lead(("session", step(ttl)), side.runtime, timeout):
            deadline.connected(min(COMMIT_S, side.runtime.now() - now))
            if deadline.passed():
                raise StoreUnavailable(f"{side.label}: no session in time")
            continue
        try:
            if session is None:
                await _begin(side, ttl, deadline)
            else:
                await keep(side, session, deadline)
        except LeaseNotFound:
            continue  # it has ended; the next turn begins another
        except (Refused, NotProcessed):
            if deadline.left() <= PAUSE_S:
                raise
            await side.transport.pause(PAUSE_S)  # the leader changes
        finally:
            side.sessions.finished(("session", step(ttl)))


async def _begin(side: Side, ttl: float, deadline: Deadline) -> None:
    """Begin a session; that is a part of connecting."""
    wanted, extra = step(ttl), min(deadline.connecting, COMMIT_S)
    asked = side.runtime.now()  # before the question: a slow answer must shorten the session
    lease, granted = await grant_lease(side, wanted, side.within(deadline.left() + extra))
    deadline.connected(min(extra, side.runtime.now() - asked))
    side.sessions.begin(Session(lease, wanted, granted, asked))


async def forsake(side: Side, session: Session, deadline: Deadline) -> None:
    """Give up a session whose time has passed on our clock.

    If the server still has it, that would be of use to nobody.
    """
    side.sessions.lose(session)
    try:
        connection = await side.connection(deadline.left())
        connection.post(messages.REVOKE, messages.of_lease(session.lease))
    except InterlockError:
        pass  # it lapses by itself


async def keep(side: Side, session: Session, deadline: Deadline, *, listed: bool = False) -> None:
    """Keep a session alive; with `listed`, also list the keys under its lease.

    Raises `LeaseNotFound` if it has ended, after all its claims were reported lost, and `StoreUnavailable` if
    nobody knows.
    """
    attempt = -1
    while attempt < 1:
        attempt += 1
        connection = await side.connection(deadline.left())
        share, token = _share(side, deadline, attempt), connection.token
        asked, sent = side.runtime.now(), time.monotonic()
        if session.lapsed(asked):
            await forsake(side, session, deadline)
            raise LeaseNotFound("its time has passed")
        connection.note_request(sent)
        try:
            confirmed = await _confirmed(side, connection, session, share, listed)
        except LeaseNotFound:
            side.sessions.lose(session)
            raise
        except NotAuthenticated as error:  # perhaps nobody but the keeper has spoken to the server for long
            if isinstance(error, OldRevision) and not deadline.passed():
                attempt -= 1  # it says nothing about the user
            await side.transport.log_in_again(
                connection, error, _time(connection, deadline), attempt + 1, token
            )
            continue
        except StoreUnavailable as error:
            side.transport.leave(connection, error, sent)
            if attempt or connection.usable or deadline.passed():
                raise
            continue  # another member may know more
        if confirmed:
            with side.sessions.mutex:
                if session.lapsed(side.runtime.now()):
                    break  # too late: nobody who has passed its own deadline is revived
                session.kept = max(session.kept, asked)
            return
    if session.lapsed(side.runtime.now()):
        await forsake(side, session, deadline)
        raise LeaseNotFound("its time has passed")
    raise StoreUnavailable(f"{side.label}: the leader changes; a keep-alive was not confirmed")


def _share(side: Side, deadline: Deadline, attempt: int) -> Deadline:
    """The time for one attempt: a member that is frozen or cut off must not use up all of it."""
    if attempt or len(side.transport.address.endpoints) == 1:
        return deadline
    return side.within(deadline.left() / 2)


async def _confirmed(
    side: Side, connection: MemberConnection, session: Session, deadline: Deadline, listed: bool
) -> bool:
    """Send a keep-alive; whether the server that answered it certainly led then."""
    before, request = connection.term, messages.of_lease(session.lease)
    kept = LeaseAnswer(await connection.call(messages.KEEP_ALIVE, request, _time(connection, deadline)))
    gone, when, found = kept.ttl <= 0, side.runtime.now(), kept
    if listed and not gone:
        request = messages.of_lease(session.lease, keys=True)
        found = LeaseAnswer(
            await connection.call(messages.TIME_TO_LIVE, request, _time(connection, deadline))
        )
        gone = found.ttl < 0  # 0 is what is left of the last second
    # It deletes nothing, so it makes no revision; but a Txn that might change something is an entry of the
    # log.
    proof = messages.txn(
        [messages.compare_create_revision(side.keys.never, 0)], [messages.delete_op(side.keys.never)]
    )
    after = TxnAnswer(await connection.call(messages.TXN, proof, _time(connection, deadline))).header.term
    connection.term, connection.served = after, time.monotonic()
    if not before == kept.header.term == after:
        return False
    if gone:
        raise LeaseNotFound("the server does not know the lease")
    if listed and when > session.listed:  # two callers may list at once, and the older list may come last
        session.keys, session.listed = frozenset(found.keys), when
    return True


def _time(connection: MemberConnection, deadline: Deadline) -> float:
    return max(connection.least, deadline.for_request())


async def tombstone_lease(side: Side, deadline: Deadline, least: float = 0.0) -> int:
    """A lease for a key that is to vanish by itself, after a minute or after `least` seconds."""
    now = side.runtime.now()
    if least > TOMBSTONE_LEASE_USED_S:
        return (await grant_lease(side, int(least) + 2, deadline))[0]
    kept = side.sessions.tombstone_lease
    if kept is not None and now < kept[1] + TOMBSTONE_LEASE_USED_S:
        return kept[0]
    lease, _ = await grant_lease(side, TOMBSTONE_LEASE_TTL_S, deadline)
    side.sessions.tombstone_lease = lease, now
    return lease


async def end_all(side: Side, timeout: float) -> None:
    """Revoke the leases of a client that closes: whatever stands under them is removed."""
    deadline = side.within(timeout)
    for session in side.sessions.end():
        if session.lapsed(side.runtime.now()) and not session.over:
            continue
        try:
            await side.call(messages.REVOKE, messages.of_lease(session.lease), deadline, again=False)
        except (LeaseNotFound, InterlockError):
            pass  # it lapses by itself
