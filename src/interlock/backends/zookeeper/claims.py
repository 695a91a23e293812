"""Enters claims: a claim is an ephemeral, sequential node, and the one rule is applied to the nodes' names.

A claim is two requests in one round trip: make the node, list its folder. The server answers the requests of
a session in their order, so the list contains the new node, and every node that came before it and still
stands. Nobody can come ahead of it later. So the list decides, and whatever changes afterwards can only help.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock._support.wording import duration
from interlock.backends.kit.connect_pace import does_not_wait
from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.errors import SessionReplaced
from interlock.backends.zookeeper.library import NoNode, NotEmpty
from interlock.backends.zookeeper.operators import Operators
from interlock.backends.zookeeper.own_claims import OwnClaim, decode
from interlock.backends.zookeeper.paths import ClaimNode, claim_prefix, counts, shrunk_node
from interlock.backends.zookeeper.queue_reads import QueueRead
from interlock.backends.zookeeper.queue_view import QueueView
from interlock.backends.zookeeper.releases import Releases
from interlock.backends.zookeeper.requester import within
from interlock.backends.zookeeper.requests import Request
from interlock.backends.zookeeper.session_client import Answer, Session
from interlock.errors import HeldUp, InvalidSetting, SettingsMismatch, StoreUnavailable, StoreUnfit
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted
from interlock.store import IO_TIMEOUT

# The part of the session's timeout that must be left when a claim is granted; or three quarters of its ttl.
MIN_SESSION_PART = 0.3
# A waiter far from the front asks less often where it stands: for each so many claims ahead of it,
# `READ_EVERY_S` more seconds pass between two reads.
CLAIMS_PER_READ_PAUSE = 100
READ_EVERY_S = 10.0
# The part of its time after which a claim is given up that was not sent: the servers need time, too.
UNSENT_PART = 0.5
MAX_BUFFER_PART = 0.95  # the part of jute.maxbuffer that the paths of a session's claims may take
SEQUENCE_DIGITS = 10  # digits that the servers add to the name of a node
MAX_ENTRIES = 3  # times a claim is entered, if its folder vanishes or an operator removes it meanwhile


def size_of(path: str) -> int:
    """The bytes of a path in a transaction: before each stands its length."""
    return len(path.encode()) + 4


def size_of_marker(claim: Claim, folder: str) -> int:
    """The bytes for the node that stands beside a claim once it has given permits back: a claim must
    always be able to.
    """
    return size_of(f"{folder}/{shrunk_node(claim.id, claim.permits)}") if claim.permits > 1 else 0


class Claims(Operators, Releases):
    """Claims, as far as the answer whether they hold or wait."""

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        ledger, deadline = self._ledger, within(self._requester, timeout)
        if (reason := ledger.evicted(claim.id)) is not None:
            return Gone(True, reason)
        began = self._runtime.now()
        while True:
            session = await self._requester.connect(deadline)
            if does_not_wait(timeout) and not ledger.tried(claim.id):
                # A caller that does not wait for the lock still waits for the network: a server that stalls
                # for a moment has as long as it has for a new connection.
                deadline.at = max(deadline.at, began + self._session_client.pace.within(timeout))
            try:
                return await self._claim_in(session, claim, deadline)
            except SessionReplaced:
                if deadline.passed():
                    raise

    async def _claim_in(self, session: Session, claim: Claim, deadline: Deadline) -> ClaimAnswer:
        """Claim in this session, which may have ended meanwhile: then nothing was asked."""
        ledger = self._ledger
        if claim.ttl > max(session.timeout + 0.001, self._usual):
            raise InvalidSetting(
                f"{claim.resource}: a ttl of {duration(claim.ttl)} is longer than the session, which the "
                f"servers of {self._session_client.label} limit to {duration(session.timeout)}; choose a "
                "shorter ttl, or have them raise maxSessionTimeout"
            )
        await self._requester.freshen(
            session, min(claim.ttl * 0.75, session.timeout * MIN_SESSION_PART), deadline
        )
        own = ledger.claims.get(claim.id)
        if own is not None and own.stands_in(session):
            return await self._repeat(own, deadline)
        if ledger.tried(claim.id):
            return await self._resume(claim, session, deadline)
        return await self._enter(claim, session, deadline)

    async def _enter(self, claim: Claim, session: Session, deadline: Deadline) -> ClaimAnswer:
        """Make the claim's node, and list the queue in the same round trip.

        Long because each answer leads to another way, and their order matters.
        """
        folder = self._paths.folder(claim.resource)
        if folder in self._session_client.worn and (ahead := await self._worn(folder, deadline)):
            return Busy(ahead, session.timeout)
        prefix = f"{folder}/{claim_prefix(claim.id, claim.permits, claim.capacity)}"
        flags, acl = requests.EPHEMERAL | requests.SEQUENTIAL, self._session_client.address.acl
        # A name that was not used of late has no folder: it is made in the same round trip, too.
        parents = [] if folder in self._session_client.folders else [requests.CreateContainer(folder, acl)]
        size = self._fitting(claim, session, prefix)
        for _ in range(MAX_ENTRIES):
            asked = self._runtime.now()
            own = OwnClaim(claim, folder, session, asked)
            self._ledger.claims[claim.id] = own
            session.enter(claim.id, size)
            create = requests.create(prefix, own.data(), acl, flags)
            (*folders, made), queue_read = await self._create(claim, folder, [*parents, create], deadline)
            if made.failed(NoNode):
                self._ledger.forget(claim.id)
                self._requester.raise_refusal(folders)
                self._session_client.folders.pop(folder, None)
                parents = self._session_client.parents(folder)
                continue
            path, stat = made.get()
            if stat.ephemeralOwner != session.number:
                raise StoreUnavailable(f"{self._session_client.label}: the session was replaced meanwhile")
            node = path.rpartition("/")[2]
            if not counts(node):
                # Its node is not noted: if the answer is lost, the claim is looked for, and
                # withdrawn again.
                if ahead := await self._withdraw(claim, folder, path, stat.czxid, deadline):
                    return Busy(ahead, session.timeout)
                parents = self._session_client.parents(folder)
                continue
            own.node, own.token = node, stat.czxid
            self._session_client.remember(folder)
            if queue_read is None:
                return self._join_crowd(own)
            return await self._judge(own, queue_read.view(), asked, deadline)
        raise StoreUnavailable(
            f"{self._session_client.label}: the folder of {claim.resource} vanished again and again"
        )

    async def _withdraw(self, claim: Claim, folder: str, path: str, czxid: int, deadline: Deadline) -> int:
        """Remove the node of a claim that does not count; return how many stand in its folder, which is
        removed if nobody does.
        """
        removed, answer = await self._requester.ask(
            [requests.delete(path), requests.exists(folder)], deadline
        )
        if not removed.failed(NoNode):
            removed.get()
        self._ledger.forget(claim.id)
        self._session_client.folders.pop(folder, None)
        stat = answer.get()
        if stat is None or stat.czxid > czxid:
            return 0  # somebody has made another folder since
        self._session_client.worn[folder] = stat.czxid
        return await self._worn(folder, deadline)

    async def _worn(self, folder: str, deadline: Deadline) -> int:
        """How many stand in a folder that has no numbers left.

        It is removed when there is nobody, and the next one begins at 0.
        """
        stat = (await self._requester.one(requests.exists(folder), deadline)).get()
        if stat is not None and stat.czxid == self._session_client.worn.get(folder):
            if stat.numChildren:
                return int(stat.numChildren)
            removed = await self._requester.one(requests.delete(folder), deadline)
            if removed.failed(NotEmpty):
                return 1
            if not removed.failed(NoNode):
                removed.get()
        self._session_client.worn.pop(folder, None)
        return 0

    def _fitting(self, claim: Claim, session: Session, prefix: str) -> int:
        """The bytes of a new claim's paths; refuses a claim that would make its session too large to end.

        When a session ends, the leader writes the paths of all its nodes into one transaction, however long
        it gets. Servers cannot read one that is longer than their `jute.maxbuffer`: neither the followers
        nor, when it is started again, the leader.
        """
        size = size_of(prefix) + SEQUENCE_DIGITS + size_of_marker(claim, prefix.rpartition("/")[0])
        most = self._session_client.address.jute_maxbuffer
        if session.size + size > most * MAX_BUFFER_PART:
            raise StoreUnfit(
                f"{claim.resource}: not asked for: this client has {len(session.ids)} claims at "
                f"{self._session_client.label}, and with many more the servers could not read the "
                f"end of its session, which names all of them, in the {most} bytes of their jute.maxbuffer; "
                "use another client as well, or raise jute.maxbuffer on all servers, and name it in the URL "
                "(?jute_maxbuffer=)"
            )
        return size

    async def _create(
        self, claim: Claim, folder: str, asked: Sequence[Request], deadline: Deadline
    ) -> tuple[list[Answer], QueueRead | None]:
        """The answers to these requests, and a read of the queue unless the claim has to wait,
        whoever else is there.
        """
        seconds = deadline.left() * UNSENT_PART
        slot = await self._send_slots.take(self._runtime, folder, seconds)
        if slot is None:
            self._ledger.forget(claim.id)
            raise HeldUp(
                f"{self._session_client.label}: not sent in {duration(seconds)}: too many claims of this "
                "client are under way"
            )
        try:
            if folder in self._session_client.folders:
                asked = asked[-1:]  # another claim has made it meanwhile
            if self._ledger.is_behind_ours(claim, folder):
                return await self._requester.ask(asked, deadline), None
            return await self._queue_reads.after(self._requester, folder, asked, deadline)
        finally:
            self._send_slots.give_back(folder, slot)

    async def _repeat(self, own: OwnClaim, deadline: Deadline) -> ClaimAnswer:
        """Read again where a claim stands whose node we know."""
        asked = self._runtime.now()
        if (waits := await self._behind_ours(own, deadline)) is not None:
            return waits
        if await self._waits_on(own, deadline):
            return Busy(own.ahead, own.session.timeout)
        _, queue_read = await self._queue_reads.after(self._requester, own.folder, (), deadline)
        answer = await self._judge(own, queue_read.view(), asked, deadline)
        first = own.first
        if not isinstance(answer, Busy) or first is None:
            return answer
        read = await self._requester.one(requests.get_data(f"{own.folder}/{first.node}"), deadline)
        if read.error is not None:
            return answer
        now = await self._requester.server_now(deadline)
        holder = self._standing(first, read.get(), True, own.claim.capacity, now)
        if (crowd := self._ledger.crowd(own.folder)) is not None:
            crowd.told(holder, self._runtime.now())
        return Busy(answer.ahead, answer.retry_after, holder)

    async def _waits_on(self, own: OwnClaim, deadline: Deadline) -> bool:
        """Whether a claim far back in the queue of a lock, and the claim it waits for, stand as before.

        Thousands who wait would otherwise list thousands, every few seconds. The places that they name are
        old then.
        """
        fresh = self._runtime.now() < own.read_at + own.ahead / CLAIMS_PER_READ_PAUSE * READ_EVERY_S
        if own.ahead < CLAIMS_PER_READ_PAUSE or own.shares() or not fresh:
            return False
        asked = [requests.get_data(path) for path in (own.path, *own.watched)]
        return all(answer.error is None for answer in await self._requester.ask(asked, deadline))

    async def _resume(self, claim: Claim, session: Session, deadline: Deadline) -> ClaimAnswer:
        """Find the node of a claim that was sent before, and perhaps applied; a node of an earlier session
        is not ours.
        """
        folder, asked = self._paths.folder(claim.resource), self._runtime.now()
        _, seen = await self._queue_reads.after(self._requester, folder, [requests.sync(folder)], deadline)
        found = seen.view().of_claim(claim.id)
        read = await self._requester.read_all(
            [requests.get_data(f"{folder}/{claim_node.node}") for claim_node in found], deadline
        )
        own: OwnClaim | None = None
        for claim_node, content in zip(found, read, strict=True):
            if content is None:
                continue
            if own is None and claim_node.counts and content[1].ephemeralOwner == session.number:
                own = OwnClaim(claim, folder, session, asked)
                own.node, own.token = claim_node.node, content[1].czxid
                own.permits, own.markers, own.note = (
                    claim_node.permits,
                    claim_node.markers,
                    decode(content[0])[2],
                )
            else:
                await self._requester.one(requests.delete(f"{folder}/{claim_node.node}"), deadline)
        if own is None:
            if (gone := await self._tombstones.find(claim.id, deadline)) is not None:
                return self._evicted(claim.id, gone)
            self._ledger.forget(claim.id)
            return await self._enter(claim, session, deadline)
        self._ledger.claims[claim.id] = own
        session.enter(claim.id, size_of(own.path) + size_of_marker(claim, folder))
        _, queue_read = await self._queue_reads.after(self._requester, folder, (), deadline)
        return await self._judge(own, queue_read.view(), asked, deadline)

    async def _judge(self, own: OwnClaim, view: QueueView, asked: float, deadline: Deadline) -> ClaimAnswer:
        """Answer by a list of the nodes; a claim that may not stay is withdrawn first."""
        claim, place = own.claim, view.find(own.node)
        if place is None:
            return await self._removed(own, deadline)
        own.see(view, place, self._runtime.now())
        other = view.other_capacity(place, claim.capacity)
        if other is not None:
            await self._delete(own, deadline)
            raise SettingsMismatch(claim.resource, claim.capacity, other)
        lingering = view.lingering(place)
        retry_after = own.session.timeout
        if lingering:
            view, retry_after = await self._end_lingering(own, view, lingering, deadline)
        if own.fits:
            return self._grant(own, asked)
        if not claim.queued:
            await self._delete(own, deadline)
            return Busy(own.ahead, retry_after)
        return self._join_crowd(own, view, retry_after)

    async def _removed(self, own: OwnClaim, deadline: Deadline) -> ClaimAnswer:
        """Answer for a claim whose node is gone: an operator has removed it, or it enters once more."""
        self._ledger.forget(own.claim.id)
        if (gone := await self._tombstones.find(own.claim.id, deadline)) is not None:
            return self._evicted(own.claim.id, gone)
        return await self._enter(own.claim, own.session, deadline)

    def _join_crowd(
        self, own: OwnClaim, view: QueueView | None = None, retry_after: float | None = None
    ) -> Busy:
        """The answer for a claim that waits, behind those of our own that came before it."""
        own.waited = True
        crowd = self._ledger.join_crowd(own, view)
        if view is None:  # it has not read the queue: this many at least
            own.ahead = max(own.ahead, len(crowd))
        timeout = own.session.timeout if retry_after is None else retry_after
        return Busy(own.ahead, timeout, crowd.holder(0.0)[1])

    async def _behind_ours(self, own: OwnClaim, deadline: Deadline) -> ClaimAnswer | None:
        """The answer for a claim behind another waiter of ours, which asks again; None if there is no such
        waiter.
        """
        first = self._ledger.first_of_ours(own)
        if first is None or not own.waited or own.admitted_at is not None:
            return None
        reads = [requests.get_data(own.path), requests.get_data(first.path)]
        holder = self._holder_to_name(first)
        if holder is not None:
            reads.append(requests.get_data(f"{own.folder}/{holder.node}"))
        node, ahead, *held = await self._requester.read_all(reads, deadline)
        if node is None:
            return await self._removed(own, deadline)
        if ahead is None:  # it was removed, and nobody has told it yet
            self._ledger.leave_crowd(first)
            return None
        if (
            holder is not None
            and held[0] is not None
            and (crowd := self._ledger.crowd(own.folder)) is not None
        ):
            now = await self._requester.server_now(deadline)
            crowd.told(self._standing(holder, held[0], True, own.claim.capacity, now), self._runtime.now())
        return self._join_crowd(own)

    def _holder_to_name(self, first: OwnClaim) -> ClaimNode | None:
        """The claim at the front of the queue, if one of our waiters should ask about it.

        It is named in messages only.
        """
        crowd, now = self._ledger.crowd(first.folder), self._runtime.now()
        if crowd is None or crowd.holder(now)[0]:
            return None
        crowd.told(crowd.holder(now)[1], now)  # the others do not ask meanwhile
        ahead = crowd.ahead_of(first.node)
        return ahead[0][1] if ahead else None

    async def _end_lingering(
        self, own: OwnClaim, view: QueueView, lingering: Sequence[ClaimNode], deadline: Deadline
    ) -> tuple[QueueView, float]:
        """Remove what has lingered ahead for long enough; return what is left, and the seconds after which
        it is worth asking again.
        """
        left = await self._lingering_left(own.folder, lingering, deadline)
        for claim_node, seconds in zip(lingering, left, strict=True):
            if seconds <= 0:
                await self._requester.one(requests.delete(f"{own.folder}/{claim_node.node}"), deadline)
        over = {claim_node.node for claim_node, seconds in zip(lingering, left, strict=True) if seconds <= 0}
        own.lingering = frozenset(claim_node.node for claim_node in lingering)
        view = view.without(over)
        if (found := view.find(own.node)) is not None:
            own.see(view, found, self._runtime.now())
        return view, min((seconds for seconds in left if seconds > 0), default=own.session.timeout)

    def _grant(self, own: OwnClaim, asked: float) -> Granted:
        """The grant, with as much of the session's time as is proved."""
        if own.admitted_at is None:
            own.admitted_at = self._runtime.now()
            self._ledger.leave_crowd(own)
            if own.must_touch():
                self._touch(own)
        left = own.session.writes.ends - asked
        return Granted(own.token, min(own.claim.ttl, left), asked)

    def _touch(self, own: OwnClaim) -> None:
        """Make a mark for those behind that this claim was let in.

        Nobody waits for it; a renewal repeats it if it was lost.
        """
        own.owes_touch = True
        self._session_client.tell(requests.set_data(own.path, own.data()), own.touched)
