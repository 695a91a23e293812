"""Inspecting queues, listing names and evicting claims, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._core.admission import admitted
from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.bell import Bell
from interlock.backends.zookeeper.library import NoNode
from interlock.backends.zookeeper.own_claims import REMEMBERED_S, decode
from interlock.backends.zookeeper.paths import ClaimNode, claim_nodes, unescaped
from interlock.backends.zookeeper.requester import within
from interlock.backends.zookeeper.side import Side
from interlock.errors import ForeignKey, StoreUnavailable
from interlock.model import Queue, Standing
from interlock.store import IO_TIMEOUT

MAX_NOTES_WATCHED = 64  # claims whose notes are watched; of a longer queue, all is read once a second
READ_EVERY_S = 1.0


class Operators(Side):
    """Seeing and mending."""

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        deadline = within(self._requester, timeout)
        await self._requester.connect(deadline)
        return await self._inspect(resource, deadline, limit)

    async def _inspect(self, resource: str, deadline: Deadline, limit: int | None = None) -> Queue:
        folder = self._paths.folder(resource)
        queue = claim_nodes(await self._requester.children(folder, deadline))
        return (await self._described(resource, queue, deadline, limit))[0]

    async def _described(
        self, resource: str, queue: Sequence[ClaimNode], deadline: Deadline, limit: int | None = None
    ) -> tuple[Queue, list[tuple[ClaimNode, Any]]]:
        """The queue as operators see it, and the nodes behind it, with their Stats."""
        if not queue:
            return Queue(resource, 0, ()), []
        folder = self._paths.folder(resource)
        capacity = next((claim_node.capacity for claim_node in queue if not claim_node.foreign), 1)
        shown = queue[:limit]
        read = await self._requester.read_all(
            [requests.get_data(f"{folder}/{p.node}") for p in shown], deadline
        )
        now = await self._requester.server_now(deadline)
        nodes = [
            (claim_node, content)
            for claim_node, content in zip(shown, read, strict=True)
            if content is not None and not (claim_node.lingering and _lingers_for(content, now) <= 0)
        ]
        inside = admitted([claim_node.permits_of(capacity) for claim_node, _ in nodes], capacity)
        standings = [
            self._standing(claim_node, content, index < inside, capacity, now)
            for index, (claim_node, content) in enumerate(nodes)
        ]
        found = Queue(resource, capacity, tuple(standings)) if standings else Queue(resource, 0, ())
        return found, [(claim_node, content[1]) for claim_node, content in nodes]

    async def _lingering_left(
        self, folder: str, lingering: Sequence[ClaimNode], deadline: Deadline
    ) -> list[float]:
        """How long each of these still lingers, seconds, by the servers' clock; 0 if it is gone."""
        read = await self._requester.read_all(
            [requests.get_data(f"{folder}/{p.node}") for p in lingering], deadline
        )
        now = await self._requester.server_now(deadline)
        return [0.0 if content is None else _lingers_for(content, now) for content in read]

    def _standing(
        self, claim_node: ClaimNode, content: tuple[bytes, Any], inside: bool, capacity: int, now: float
    ) -> Standing:
        """One claim; `now` is the servers' time."""
        data, stat = content
        age = max(0.0, now - stat.ctime / 1000)
        if claim_node.foreign:
            return Standing(claim_node.id, stat.czxid, capacity, inside, age, 0.0, "", "", foreign=True)
        timeout, since, note, who = decode(data)
        if claim_node.lingering:
            timeout = _lingers_for(content, now)
        own = self._ledger.claims.get(claim_node.id)
        if inside and own is not None and own.admitted_at is not None:
            age = self._session_client.now() - own.admitted_at
        elif inside and since is not None:
            age = max(0.0, age - since)
        return Standing(claim_node.id, stat.czxid, claim_node.permits, inside, age, timeout, note, who)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        deadline = within(self._requester)
        await self._requester.connect(deadline)
        listed = [unescaped(child) for child in await self._requester.children(self._paths.root, deadline)]
        names = sorted(
            name for name in listed if name is not None and name.startswith(prefix) and name > after
        )
        found: list[str] = []
        while names and len(found) < limit:
            page, names = names[: max(limit, 20)], names[max(limit, 20) :]
            reads = [requests.get_children(self._paths.folder(name)) for name in page]
            for name, children in zip(page, await self._requester.read_all(reads, deadline), strict=True):
                standing = claim_nodes(children or ())
                if any(not claim_node.lingering for claim_node in standing) or (
                    standing and (await self._inspect(name, deadline)).standings
                ):
                    found.append(name)
        return found[:limit]

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        deadline = within(self._requester)
        await self._requester.connect(deadline)
        folder = self._paths.folder(resource)
        queue = claim_nodes(await self._requester.children(folder, deadline))
        described, nodes = await self._described(resource, queue, deadline)
        victims = [
            (standing, claim_node, stat)
            for standing, (claim_node, stat) in zip(described.standings, nodes, strict=True)
            if (standing.admitted if id is None else standing.id == id)
        ]
        for _, claim_node, stat in victims:
            if claim_node.foreign and not (foreign and (stat.ephemeralOwner or no_expiry)):
                raise ForeignKey(resource, "node", bool(stat.ephemeralOwner))
        if victims:
            await self._tombstones.prepare(deadline)
        removed = [
            standing
            for standing, claim_node, _ in victims
            if await self._evict(folder, claim_node, standing, reason, deadline)
        ]
        await self._tombstones.sweep(deadline)
        return removed

    async def _evict(
        self, folder: str, claim_node: ClaimNode, standing: Standing, reason: str, deadline: Deadline
    ) -> bool:
        """Remove one claim and leave a note of it, in one step; False if it has gone by itself."""
        parts = [requests.delete(f"{folder}/{node}") for node in (claim_node.node, *claim_node.markers)]
        if not claim_node.foreign:
            life = max(REMEMBERED_S, standing.lapses_in)
            parts.append(self._tombstones.evicting(claim_node.id, reason, life))
        results: list[Any] = (await self._requester.one(requests.multi(parts), deadline)).get()
        if any(isinstance(result, Exception) for result in results):
            return False
        if not claim_node.foreign:
            self._ledger.evict(
                claim_node.id, reason, self._session_client.now(), max(REMEMBERED_S, standing.lapses_in)
            )
        return True

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        deadline = within(self._requester, timeout)
        folder = self._paths.folder(resource)
        try:
            await self._requester.connect(deadline, connecting_is_extra=False)
            bell = self._session_client.new_bell(self._requester.runtime.signal())
            paths = [folder]
            try:
                await self._listen_to(folder, bell, paths, deadline)
                if outline(await self._inspect(resource, deadline)) == outline(seen):
                    most = (
                        deadline.left()
                        if len(paths) <= MAX_NOTES_WATCHED
                        else min(READ_EVERY_S, deadline.left())
                    )
                    await self._requester.runtime.wait(bell.signal, most)
            finally:
                self._session_client.forget_watcher(bell, paths)
        except StoreUnavailable:
            if not deadline.passed():
                raise

    async def _listen_to(self, folder: str, bell: Bell, paths: list[str], deadline: Deadline) -> None:
        """Watch who comes and leaves, and the notes of those who stand there; or for the folder to be
        made.
        """
        listed = await self._requester.one(requests.get_children(folder, bell), deadline)
        if listed.failed(NoNode):
            (await self._requester.one(requests.exists(folder, bell), deadline)).get()
            return
        paths += [
            f"{folder}/{claim_node.node}" for claim_node in claim_nodes(listed.get())[:MAX_NOTES_WATCHED]
        ]
        await self._requester.ask(
            [requests.get_data(path, bell) for path in paths[1:]] or [requests.sync(folder)], deadline
        )


def _lingers_for(content: tuple[bytes, Any], now: float) -> float:
    """The seconds that a node still lingers; `now` is the servers' time."""
    data, stat = content
    made: float = stat.ctime / 1000
    return decode(data)[0] - (now - made)
