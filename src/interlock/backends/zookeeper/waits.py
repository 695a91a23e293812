"""Waits: a claim watches, reads, and sleeps until what it watches has changed.

Of the waiters of one client on one resource only the oldest does so; the others sleep until it waits no
longer (`kit/crowds.py`). Nobody is let in by that: each grant rests on what the server has said after the
claim was made, and on the claim's own node, which was there at that time.

A claim that shares with nobody is let in when all ahead of it have left. Nobody comes ahead of it later,
except for a node that lingers in the place of another, of which its watch of the folder tells (see `bell`).
So one list tells for ever who was ahead of it, and of the claims behind it; those who have left since are
found by their paths. So a hand-over costs the same, however long the queue is. Other claims list the queue
after each change, because a claim ahead of them may have shrunk or have been let in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.bell import Bell
from interlock.backends.zookeeper.claims import Claims
from interlock.backends.zookeeper.library import NoNode
from interlock.backends.zookeeper.own_claims import FolderCrowd, OwnClaim
from interlock.backends.zookeeper.paths import ClaimNode
from interlock.backends.zookeeper.queue_view import QueueView
from interlock.backends.zookeeper.requester import within
from interlock.backends.zookeeper.session_client import Answer
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, Granted

# Claims ahead that are read by their paths; if all of these have left and there were more, the queue is
# listed.
NEAREST_CLAIMS = 100

UNKNOWN_PAUSE_S = 0.02  # seconds after which a claim that is not known to stand is asked for again
EMPTYING_PAUSE_S = 0.2  # if its folder has no numbers left, and others still stand there

WAITS, GONE = "waits", "gone"
"""The outcomes of a read for a claim that is not let in: it stands and listens, or it does not stand and must
be asked for again.
"""


class Waits(Claims):
    """The waits of claims that have entered."""

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        deadline = within(self._requester, timeout)
        own = self._ledger.claims.get(claim.id)
        if own is None or not own.stands_in(self._session_client.session):
            pause = (
                EMPTYING_PAUSE_S
                if self._paths.folder(claim.resource) in self._session_client.worn
                else UNKNOWN_PAUSE_S
            )
            await self._runtime.wait(self._runtime.signal(), min(deadline.left(), pause))
            return None
        bell = self._session_client.new_bell(self._runtime.signal())
        try:
            if busy is None:
                await self._until_removed(own, bell, deadline)
                return None
            if own.fits or not await self._first_of_ours(own, deadline):
                return None
            return await self._until_let_in(own, bell, deadline)
        except StoreUnavailable:
            if deadline.passed():
                return None
            raise
        finally:
            if bell.paths:
                self._session_client.forget_watcher(bell, bell.paths)

    async def _until_removed(self, own: OwnClaim, bell: Bell, deadline: Deadline) -> None:
        """Wait until the node of a holder is gone."""
        while not deadline.passed() and self._stands(own, bell):
            if listening := bell.arm([own.path]):
                self._heard(bell, listening, await self._requester.ask(list(listening.values()), deadline))
            elif await self._runtime.wait(bell.signal, deadline.left()):
                bell.signal = self._runtime.signal()

    async def _first_of_ours(self, own: OwnClaim, deadline: Deadline) -> bool:
        """Sleep while an older claim of this client waits; False if the time is up, or the claim does not
        stand any more.
        """
        # Otherwise its session has ended, or it was removed.
        while own.stands_in(self._session_client.session) and self._ledger.claims.get(own.claim.id) is own:
            called = self._ledger.behind_ours(own, self._runtime.signal)
            if called is None:
                return True
            if not await self._runtime.wait(called, deadline.left()):
                return False
        return False

    async def _until_let_in(self, own: OwnClaim, bell: Bell, deadline: Deadline) -> Granted | None:
        """Read, and sleep until something has changed, until a read lets the claim in; None if it must be
        asked for again.
        """
        crowd = self._ledger.crowd(own.folder) or FolderCrowd(own.claim.capacity)  # to remember what was seen
        read = self._read_ahead if own.exclusive() else self._read_queue
        while not deadline.passed() and self._stands(own, bell):
            found = await read(own, crowd, bell, deadline)
            if isinstance(found, Granted):
                return found
            if found == GONE:
                return None
            if found == WAITS:
                if not await self._runtime.wait(bell.signal, deadline.left()):
                    return None
                bell.signal = self._runtime.signal()  # first: what is heard from here on rings again
        return None

    def _stands(self, own: OwnClaim, bell: Bell) -> bool:
        """Whether the claim stands in the present session, as far as is known."""
        return (
            not bell.broken and own.path not in bell.deleted and own.stands_in(self._session_client.session)
        )

    def _heard(self, bell: Bell, paths: Iterable[str], answers: Sequence[Answer]) -> None:
        """Note which of the nodes that were to be watched are gone: they have no watch."""
        for path, answer in zip(paths, answers, strict=True):
            if answer.failed(NoNode):
                bell.deleted.add(path)
                bell.armed.discard(path)
            else:
                answer.get()

    # ---- a claim that shares with nobody ---------------------------------------------------

    async def _read_ahead(
        self, own: OwnClaim, crowd: FolderCrowd, bell: Bell, deadline: Deadline
    ) -> Granted | str | None:
        """See who of those ahead still stands, each by its path, and listen to the nearest; None if it has
        to read again.
        """
        crowd.left([path.rpartition("/")[2] for path in tuple(bell.deleted)])
        version = crowd.view.version  # first: what is seen later is at least as new
        ahead = crowd.ahead_of(own.node)
        if ahead is None:
            return await self._list(own, crowd, bell, deadline)
        claim_nodes = [claim_node for _, claim_node in ahead]
        if any(claim_node.lingering and claim_node.node not in own.lingering for claim_node in claim_nodes):
            return GONE  # asking again tells until when
        near = claim_nodes[-NEAREST_CLAIMS:]
        gone = await self._read_by_path(own, bell, near, version, deadline)
        if gone is None:
            return await self._list(own, crowd, bell, deadline)
        if not self._stands(own, bell):
            return GONE
        crowd.left(gone)
        standing = [claim_node for claim_node in near if claim_node.node not in gone]
        own.ahead = len(claim_nodes) - len(gone)
        if not own.ahead:
            own.let_in(self._runtime.now())
            return self._grant(own, self._runtime.now())
        if not standing:
            return await self._list(own, crowd, bell, deadline)
        return WAITS if f"{own.folder}/{standing[-1].node}" in bell.armed else None

    async def _read_by_path(
        self, own: OwnClaim, bell: Bell, near: Sequence[ClaimNode], version: int, deadline: Deadline
    ) -> set[str] | None:
        """The nodes among these that have left. The last of them is watched from now on, and so are the claim
        itself and its folder.

        None if some claim has lingered since the queue was listed.
        """
        paths = [own.folder, own.path, *(f"{own.folder}/{claim_node.node}" for claim_node in near)]
        listening = bell.arm([*paths[:2], *paths[-1:]])
        others = paths[2:-1]
        reads = self._requester.reading([requests.get_data(path) for path in others])
        if not (listening or reads):
            return set()
        answers = await self._requester.ask([*listening.values(), *reads], deadline)
        self._heard(bell, listening, answers[: len(listening)])
        for path, answer in zip(listening, answers, strict=False):
            if path == own.folder and answer.error is None and answer.get()[1].version != version:
                bell.changed.add(path)
        if own.folder in bell.changed or own.folder in bell.deleted:
            return None
        read = self._requester.read_together(answers[len(listening) :])
        if read is None:
            return await self._read_by_path(own, bell, near, version, deadline)
        left = {path for path, content in zip(others, read, strict=True) if content is None}
        left |= bell.deleted
        return {claim_node.node for claim_node in near if f"{own.folder}/{claim_node.node}" in left}

    async def _list(self, own: OwnClaim, crowd: FolderCrowd, bell: Bell, deadline: Deadline) -> str | None:
        """Begin to listen, and list the queue after that; None if the claim stands there, otherwise GONE."""
        view = await self._listen(own, bell, (), deadline)
        if view.find(own.node) is None:
            return GONE
        crowd.saw(view)
        return None

    async def _listen(
        self, own: OwnClaim, bell: Bell, watched: Sequence[str], deadline: Deadline
    ) -> QueueView:
        """Watch the folder, the claim and these nodes, and list the queue after that."""
        listening = bell.arm([own.folder, own.path, *watched])
        asked = list(listening.values())
        answers, queue_read = await self._queue_reads.after(self._requester, own.folder, asked, deadline)
        self._heard(bell, listening, answers)
        return queue_read.view()

    # ---- a claim that others may share with ------------------------------------------------

    async def _read_queue(
        self, own: OwnClaim, crowd: FolderCrowd, bell: Bell, deadline: Deadline
    ) -> Granted | str | None:
        """List the queue, and listen to those that must change first; None if it has to read again,
        because these are others now.
        """
        now = self._runtime.now
        watched = own.watched
        alone = own.ahead == 1 and len(watched) == 1 and watched[0] in bell.deleted
        if alone and own.folder not in bell.changed:
            # Events come in the order of what happened, and the claim itself is watched as well: it still
            # stood then.
            own.let_in(now())
            return self._grant(own, now())
        view = self._seen(own, crowd) or await self._listen(own, bell, watched, deadline)
        place = view.find(own.node)
        if place is None or not self._stands(own, bell):
            return GONE
        own.see(view, place, now())
        crowd.saw(view)
        if own.fits:
            return self._grant(own, now())
        if any(one.node not in own.lingering for one in view.lingering(place)):
            return GONE
        return WAITS if bell.armed.issuperset(own.watched) and own.folder in bell.armed else None

    def _seen(self, own: OwnClaim, crowd: FolderCrowd) -> QueueView | None:
        """The last view of the queue, if this claim is let in by it: so readers that waited for one writer
        share one read.
        """
        view, capacity = crowd.view, own.claim.capacity
        place = view.find(own.node)
        if place is None or view.permits_ahead(place, capacity) + own.permits > capacity:
            return None
        return view
