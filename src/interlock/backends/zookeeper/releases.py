"""Removes claims: at once, or so that a node without a session lingers for the rest of a `min_hold`."""

from __future__ import annotations

from typing import Any

from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.errors import QUOTA, translated
from interlock.backends.zookeeper.library import NoNode
from interlock.backends.zookeeper.own_claims import OwnClaim, encode
from interlock.backends.zookeeper.paths import ClaimNode, claim_nodes, lingering_node
from interlock.backends.zookeeper.side import Side
from interlock.store import IO_TIMEOUT


class Releases(Side):
    """Releases, and the withdrawals of claims that may not stay."""

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        deadline = self._requester.strictly_within(timeout)
        session = await self._requester.connect(deadline, connecting_is_extra=False)
        own, tried = self._ledger.claims.get(id), self._ledger.tried(id)
        if own is not None:
            # Before its node is deleted: that may fail, and the next of ours must see to itself.
            self._ledger.leave_crowd(own)
        if own is not None and own.claim.resource == resource and own.stands_in(session):
            lingers = linger > 0 and own.admitted_at is not None
            stood = await (self._leave(own, linger, deadline) if lingers else self._delete(own, deadline))
        else:
            stood = await self._delete_all(resource, id, deadline)
        if tried and not stood and (gone := await self._tombstones.find(id, deadline)) is not None:
            self._evicted(id, gone)  # or it could come back under the same id
        return stood

    async def _delete_all(self, resource: str, id: str, deadline: Deadline) -> bool:
        """Remove every node of a claim, whichever session made it; False if there was none."""
        folder = self._paths.folder(resource)
        stood = False
        for claim_node in claim_nodes(await self._requester.children(folder, deadline)):
            if claim_node.id == id and not claim_node.foreign:
                stood |= await self._delete_place(folder, claim_node, deadline)
        own = self._ledger.claims.get(id)
        if own is None or own.claim.resource == resource:
            self._ledger.forget(id)
        return stood

    async def _leave(self, own: OwnClaim, linger: float, deadline: Deadline) -> bool:
        """Put a node that belongs to no session in the place of the claim's, in one step: it outlives this
        process.

        Whoever comes after its time is over removes it; so does a sweep, if nobody comes.
        """
        claim, acl = own.claim, self._session_client.address.acl
        node = lingering_node(own.node, own.token, own.permits, claim.capacity)
        path = f"{own.folder}/{node}"
        parts = [
            # First, so that waiters hear of it before they hear that the claim has left.
            requests.set_data(own.folder, b""),
            requests.delete(own.path),
            *(requests.delete(f"{own.folder}/{marker}") for marker in own.markers),
            requests.create_in_multi(path, encode(linger, None, own.note, claim.who), acl),
            self._tombstones.lingering(own.token, path, linger),
        ]
        for _ in range(2):
            results: list[Any] = (await self._requester.one(requests.multi(parts), deadline)).get()
            if not any(isinstance(result, Exception) for result in results):
                self._ledger.forget(claim.id)
                await self._tombstones.sweep(deadline)
                return True
            for result in results:
                if isinstance(result, QUOTA):  # it stands still, and so is released again later
                    raise translated(self._session_client.label, result)
            if isinstance(results[1], NoNode):
                break
            await self._tombstones.prepare(deadline)
        self._ledger.forget(claim.id)
        return False

    async def _delete(self, own: OwnClaim, deadline: Deadline) -> bool:
        """Remove a claim's node, with its markers; False if it did not stand."""
        claim_node = ClaimNode(0, own.node, own.claim.id, own.permits, own.claim.capacity, own.markers)
        stood = await self._delete_place(own.folder, claim_node, deadline)
        self._ledger.forget(own.claim.id)
        return stood

    async def _delete_place(self, folder: str, claim_node: ClaimNode, deadline: Deadline) -> bool:
        if not claim_node.markers:
            answer = await self._requester.one(requests.delete(f"{folder}/{claim_node.node}"), deadline)
            return False if answer.failed(NoNode) else bool(answer.get())
        parts = [requests.delete(f"{folder}/{node}") for node in (claim_node.node, *claim_node.markers)]
        results: list[Any] = (await self._requester.one(requests.multi(parts), deadline)).get()
        if not any(isinstance(result, Exception) for result in results):
            return True
        # The list was old: remove what is left of it, one by one.
        answers = await self._requester.ask(parts, deadline)
        return answers[0].error is None
