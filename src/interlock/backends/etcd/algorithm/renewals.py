"""Renewals: a few requests for any number of claims.

Every session that is involved is kept once, and the server lists the keys under its lease: a claim stands if
its key is there. A key under our lease that no claim of this client knows is removed: it came from a request
that arrived after it was given up. And a claim whose key is gone is forgotten: others may remove it, and its
owner need not release it then. Keys are used again, so a list of keys counts only for claims that were known
to stand before it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from interlock.backends.etcd.algorithm.claims import mark_again
from interlock.backends.etcd.algorithm.keeping import keep
from interlock.backends.etcd.algorithm.releases import withdraw
from interlock.backends.etcd.algorithm.session_watch import watch_session
from interlock.backends.etcd.algorithm.sessions import Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.wire.messages import (
    compare_create_revision,
    compare_mod_revision,
    get,
    get_op,
    put,
    put_op,
    txn,
)
from interlock.backends.etcd.wire.values import ClaimKey, encoded, eviction
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.listing import MIN_BULK_RENEWALS, recent
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import Gone, NoAnswer, Renewal, RenewAnswer, Renewed

READS_PER_TXN = 100  # reads in one Txn
# Keys of nobody that are removed in one renewal, and claims without a key that are forgotten.
MAX_STRANGERS = 16
TIDY_TIMEOUT_S = 0.5  # seconds that this may take
MAX_TRIES = 4


async def renew(side: Side, renewals: Sequence[Renewal], timeout: float) -> list[RenewAnswer]:
    if not renewals:
        return []
    deadline = await side.begin(timeout, connecting_is_extra=False)
    sessions = {id(s): s for r in renewals if (s := side.sessions.of_claim(r.id)) is not None}
    newest = max((own.entered for r in renewals if (own := side.sessions.own(r.id)) is not None), default=0.0)
    faults: dict[int, StoreUnavailable] = {}
    listed: list[tuple[Session, float]] = []
    for number, session in sessions.items():
        bulk = len(renewals) >= MIN_BULK_RENEWALS and newest <= session.listed
        began = side.runtime.now()
        if bulk and began < session.listed + recent(session.listing, session.ttl) and not session.over:
            continue
        try:
            await keep(side, session, deadline, listed=True)
            watch_session(side, session)
            listed.append((session, began))
        except LeaseNotFound:
            pass  # it is over, and so are its claims
        except StoreUnavailable as error:
            faults[number] = error
    if faults and len(faults) == len(sessions):
        raise next(iter(faults.values()))
    answers: list[RenewAnswer | None] = []
    for renewal in renewals:
        answers.append(await _answer(side, renewal, sessions, faults, deadline))
    explained = await _explained(side, renewals, answers, deadline)
    if side.sessions.let_in:
        with suppress(InterlockError):
            await mark_again(side, side.within(min(TIDY_TIMEOUT_S, deadline.left() / 2)))
    for session, began in listed:
        await _tidy_up(side, session, deadline)
        session.listing = side.runtime.now() - began
    return explained


async def _tidy_up(side: Side, session: Session, deadline: Deadline) -> None:
    """Remove what nobody owns, and forget what is gone. The next renewal does what this one has not done."""
    brief = side.within(
        min(TIDY_TIMEOUT_S, deadline.left() / 2)
    )  # the leases are not renewed before this returns
    if not brief.passed():
        with suppress(InterlockError):
            await _tidy(side, session, brief)


async def _tidy(side: Side, session: Session, deadline: Deadline) -> None:
    known = {side.keys.session(session.lease), *(own.key for _, own in side.sessions.claims_of(session))}
    strange = [key for key in session.keys if key not in known]
    for key in strange[:MAX_STRANGERS]:
        await withdraw(side, session, key, deadline)
    for id in _missing(side, session)[:MAX_STRANGERS]:
        await _forget_if_removed(side, session, id, deadline)


def _missing(side: Side, session: Session) -> list[str]:
    """The claims that stood before the keys were listed, and are not in the list."""
    claims = side.sessions.claims_of(session)
    return [id for id, own in claims if own.entered <= session.listed and own.key not in session.keys]


async def _forget_if_removed(side: Side, session: Session, id: str, deadline: Deadline) -> None:
    """Forget a claim, unless a read finds it: the server that lists keys may not have applied the latest
    ones yet.
    """
    own = side.sessions.own(id)
    if own is not None:
        found = await side.range(get(own.key), deadline)
        if not any(ClaimKey(kv).claim_id == id for kv in found.kvs):
            side.sessions.leave_removed(id, session.listed)


async def _answer(
    side: Side,
    renewal: Renewal,
    sessions: dict[int, Session],
    faults: dict[int, StoreUnavailable],
    deadline: Deadline,
) -> RenewAnswer | None:
    """The answer; None if the claim does not stand, and the reason is to be found."""
    own = side.sessions.own(renewal.id)
    if own is None or id(session := own.session) not in sessions:
        return None
    if id(session) in faults:
        return NoAnswer(str(faults[id(session)]))
    if session.over or own.key not in session.keys or not (own.admitted or renewal.waiting):
        return None
    if renewal.note is not None or renewal.permits is not None:
        if not await _rewrite(side, renewal, deadline):
            return None
    ttl = min(renewal.ttl, session.ttl)
    return Renewed(ttl, session.kept)


async def _rewrite(side: Side, renewal: Renewal, deadline: Deadline) -> bool:
    """Change a claim's note or permits in place; False if it does not stand. Never creates it."""
    key = side.key_of(renewal.resource, renewal.id)
    for _ in range(MAX_TRIES):
        kvs = (await side.range(get(key), deadline)).kvs
        if not kvs:
            return False
        own = ClaimKey(kvs[0])
        if own.said is None or own.claim_id != renewal.id or own.said.get("lingering"):
            return False
        said = dict(own.said)
        if renewal.note is not None:
            said["note"] = renewal.note
        if renewal.permits is not None and renewal.permits < said["permits"]:
            said["permits"] = renewal.permits
        if said == own.said:
            return True
        answer = await side.txn(
            txn(
                [compare_create_revision(key, own.created), compare_mod_revision(key, own.modified)],
                [put_op(put(key, encoded(said), keep_lease=True))],
            ),
            deadline,
        )
        if answer.succeeded:
            return True
    raise StoreUnavailable(f"{side.label}: the claim on {renewal.resource} is written by others all the time")


async def _explained(
    side: Side, renewals: Sequence[Renewal], answers: list[RenewAnswer | None], deadline: Deadline
) -> list[RenewAnswer]:
    """The answers, with the reasons for claims that do not stand."""
    missing = [index for index, answer in enumerate(answers) if answer is None]
    found: dict[int, RenewAnswer] = {}
    for start in range(0, len(missing), READS_PER_TXN):
        batch = missing[start : start + READS_PER_TXN]
        reads = [get_op(get(side.keys.gone(renewals[index].id))) for index in batch]
        answer = await side.txn(txn([], reads), deadline)
        for n, index in enumerate(batch):
            kvs = answer.ranged(n).kvs
            reason = eviction(kvs[0].value) if kvs else None
            found[index] = Gone() if reason is None else Gone(True, reason)
    return [found[index] if answer is None else answer for index, answer in enumerate(answers)]
