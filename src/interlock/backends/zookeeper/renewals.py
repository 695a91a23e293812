"""Renewals: one list of the session's nodes, or one read of each node, says which claims stand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.listing import MIN_BULK_RENEWALS, recent
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.errors import CutOff
from interlock.backends.zookeeper.library import NodeExists, NoNode, Unimplemented
from interlock.backends.zookeeper.own_claims import OwnClaim
from interlock.backends.zookeeper.paths import shrunk_node
from interlock.backends.zookeeper.requester import StrictDeadline
from interlock.backends.zookeeper.session_client import Listing, Session
from interlock.backends.zookeeper.side import Side
from interlock.errors import StoreUnavailable
from interlock.model import Gone, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT

MANY_CLAIMS = 300  # claims in a session from which on one list of them serves several renewals
MAX_MARKS = 500  # claims that a renewal marks, for people to see since when they hold
SWEEP_TIMEOUT_S = 0.25  # seconds that a renewal spends on old notes, at most


class Renewals(Side):
    """The renewals of the keeper."""

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        deadline = self._requester.strictly_within(timeout)
        if not renewals:
            return []
        while True:
            try:
                return await self._renew(renewals, deadline)
            except CutOff:  # all that a renewal writes may be written twice
                if not await self._requester.reconnected(deadline):
                    raise

    async def _renew(self, renewals: Sequence[Renewal], deadline: StrictDeadline) -> list[RenewAnswer]:
        session = await self._requester.connect(deadline, connecting_is_extra=False)
        standing, asked = await self._standing_paths(renewals, session, deadline)
        answers: list[RenewAnswer] = []
        marks = MAX_MARKS
        for renewal in renewals:
            own = self._ledger.claims.get(renewal.id)
            stands = own is not None and own.stands_in(session) and own.path in standing
            if own is not None and own.admitted_at is None and not renewal.waiting:
                stands = False  # it only waits, and its caller holds it
            if own is None or not stands or not await self._change(own, renewal, deadline):
                if own is not None:
                    self._ledger.leave_crowd(own)  # it is woken, and asks
                answers.append(await self._gone(renewal, deadline))
                continue
            if marks > 0 and own.waited and own.admitted_at is not None and not own.since_told:
                # Nobody waits for it: thousands of readers that were let in at once would delay the next
                # renewals.
                marks -= 1
                self._session_client.tell(requests.set_data(own.path, own.data()), own.touched)
            ttl = min(renewal.ttl, session.timeout)
            # The ttl counts from an instant at which it ends no later than the session does.
            answers.append(Renewed(ttl, min(asked, session.writes.ends - ttl)))
        with suppress(StoreUnavailable):  # a moment for the common good, once a minute
            sweeping = StrictDeadline(self._runtime.now, min(SWEEP_TIMEOUT_S, deadline.left() / 4))
            await self._tombstones.sweep(sweeping, few=True)
        return answers

    async def _standing_paths(
        self, renewals: Sequence[Renewal], session: Session, deadline: Deadline
    ) -> tuple[Collection[str], float]:
        """The nodes of these claims that stand, and since when that is known."""
        asked = self._runtime.now()
        listing = await self._listing(len(renewals), session, deadline)
        listed, asked = (frozenset[str](), asked) if listing is None else (listing.paths, listing.asked)
        found = [self._ledger.claims.get(renewal.id) for renewal in renewals]
        known = [own.path for own in found if own is not None and own.stands_in(session)]
        # A claim may be younger than the list, and whoever is not in it is asked for.
        others = [path for path in known if path not in listed]
        read = await self._requester.read_all([requests.get_data(path) for path in others], deadline)
        there = {
            path
            for path, content in zip(others, read, strict=True)
            if content is not None and content[1].ephemeralOwner == session.number
        }
        return there.union(path for path in known if path in listed), asked

    async def _listing(self, renewals: int, session: Session, deadline: Deadline) -> Listing | None:
        """The nodes of a session, listed now or a short while ago; None if the claims are to be asked for one
        by one.

        The session is kept by a write, in the same round trip, unless that was done for a list that is
        recent.
        """
        asked, listing = self._runtime.now(), session.listing
        many = len(self._ledger.claims) > MANY_CLAIMS
        if many and listing is not None and asked < listing.asked + recent(listing.took, session.timeout):
            return listing
        self._session_client.beat(session, None)
        if self._session_client.no_ephemerals or (many and renewals < MIN_BULK_RENEWALS):
            return None
        answer = await self._requester.one(requests.GetEphemerals(self._paths.root), deadline)
        if answer.failed(Unimplemented):
            self._session_client.no_ephemerals = True  # a server below 3.6
            return None
        paths = frozenset(answer.get())
        session.listing = Listing(paths, asked, self._runtime.now() - asked)
        return session.listing

    async def _gone(self, renewal: Renewal, deadline: Deadline) -> Gone:
        if (reason := self._ledger.evicted(renewal.id)) is not None:
            return Gone(True, reason)
        tried = self._ledger.tried(renewal.id)
        gone = await self._tombstones.find(renewal.id, deadline) if tried else None
        return Gone() if gone is None else self._evicted(renewal.id, gone)

    async def _change(self, own: OwnClaim, renewal: Renewal, deadline: Deadline) -> bool:
        """Write what a renewal changes: the note, the permits, a mark that was lost; False if the claim is
        gone.
        """
        shrinks = renewal.permits is not None and renewal.permits < own.permits
        changed = renewal.note is not None and renewal.note != own.note
        if not (shrinks or changed or own.owes_touch):
            return True
        before = own.note
        own.note = own.note if renewal.note is None else renewal.note
        if shrinks and renewal.permits is not None:
            return await self._shrink(own, renewal.permits, deadline)
        answer = await self._requester.one(requests.set_data(own.path, own.data()), deadline)
        if answer.error is not None:
            own.note = before
            return False if answer.failed(NoNode) else answer.get()
        own.touched(answer)
        return True

    async def _shrink(self, own: OwnClaim, permits: int, deadline: Deadline) -> bool:
        """Give some permits back: a node beside the claim's says what it has left, and a write wakes those
        who watch it.
        """
        marker = shrunk_node(own.claim.id, permits)
        acl = self._session_client.address.acl
        parts = [
            requests.set_data(own.path, own.data()),
            requests.create_in_multi(f"{own.folder}/{marker}", b"", acl, requests.EPHEMERAL),
            *(requests.delete(f"{own.folder}/{old}") for old in own.markers if old != marker),
        ]
        results: list[Any] = (await self._requester.one(requests.multi(parts), deadline)).get()
        if isinstance(results[0], NoNode):
            return False
        if any(isinstance(result, Exception) for result in results):
            # Sent before, and its answer was lost: the marker is there. Anything else is seen by the next
            # read.
            if not any(isinstance(result, NodeExists) for result in results):
                raise StoreUnavailable(
                    f"{self._session_client.label}: {own.claim.resource} was not shrunk: {results}"
                )
        own.permits, own.markers = permits, (marker,)
        return True
