"""Notes of what was removed a short while ago, or will be: evicted claims, deleted registers, claims that
linger; in one folder that everybody sweeps.

ZooKeeper has no timer that removes a node. So every note says how long it is to be kept, and whoever writes
one, and every client that renews, removes those whose time is over, at most once a minute.
"""

from __future__ import annotations

import json
from typing import Any

from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.library import NoNode
from interlock.backends.zookeeper.paths import unescaped
from interlock.backends.zookeeper.requester import Requester
from interlock.backends.zookeeper.requests import Request

SWEEP_PERIOD_S = 60.0  # seconds
MAX_NOTES_PER_SWEEP = 1000  # notes that one sweep looks at
MAX_NOTES_IN_A_HURRY = 50  # or so many, if its caller is in a hurry


class Tombstones:
    """Reads, writes and sweeps the folder of what is gone."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._session_client = requester.session_client
        self._paths = requester.session_client.paths
        self._swept = float("-inf")

    async def find(self, id: str, deadline: Deadline) -> tuple[str, float] | None:
        """The reason that an operator gave for removing this claim, and for how long it is remembered."""
        read = await self._requester.data(self._paths.evicted(id), deadline)
        if read is None:
            return None
        note = _note(read[0])
        return str(note[0]), float(note[1])

    def evicting(self, id: str, reason: str, life: float) -> Request:
        """A part of a `multi` that removes this claim."""
        return self._create(self._paths.evicted(id), [reason, life])

    def lingering(self, token: int, path: str, life: float) -> Request:
        """A part of a `multi` that leaves the node at `path` for so many seconds."""
        return self._create(self._paths.lingers(token), [path, life])

    def deleting(self, name: str, life: float) -> tuple[Request, Request]:
        """A part of a `multi` that deletes this register, and another one in case that there is a note
        already.
        """
        path = self._paths.deleted(name)
        return self._create(path, ["", life]), requests.set_data(path, _encoded(["", life]))

    def _create(self, path: str, note: list[Any]) -> Request:
        return requests.create_in_multi(path, _encoded(note), self._session_client.address.acl)

    async def prepare(self, deadline: Deadline) -> None:
        """Make the folder: a `multi` cannot tell which of its parts lacked one."""
        await self._requester.make_parents(self._paths.gone, deadline)

    async def sweep(self, deadline: Deadline, *, few: bool = False) -> None:
        """Remove the notes whose time is over, and what they stand for; at most once a minute, and some of
        them if `few`.
        """
        now = self._session_client.now()
        if now < self._swept + SWEEP_PERIOD_S:
            return
        self._swept = now
        listed = await self._requester.one(requests.get_children(self._paths.gone), deadline)
        if listed.error is not None:
            return
        names: list[str] = listed.get()[: MAX_NOTES_IN_A_HURRY if few else MAX_NOTES_PER_SWEEP]
        paths = [f"{self._paths.gone}/{name}" for name in names]
        read = await self._requester.read_all([requests.get_data(path) for path in paths], deadline)
        clock = await self._requester.server_now(deadline)
        for name, path, content in zip(names, paths, read, strict=True):
            if content is None:
                continue
            about, life = _note(content[0])
            if clock - content[1].mtime / 1000 > life:
                await self._remove(name, path, about, deadline)

    async def _remove(self, name: str, path: str, about: str, deadline: Deadline) -> None:
        kind, _, element = name.partition("-")
        if kind == "linger" and about.startswith(f"{self._paths.root}/"):
            await self._requester.one(requests.delete(about), deadline)
        register = unescaped(element) if kind == "register" else None
        if register is not None:
            at = self._paths.register(register)
            answer = await self._requester.one(requests.get_data(at), deadline)
            if answer.error is None and answer.value[0].startswith(b"-"):
                # By its version: somebody may write it again this very moment.
                parts = [requests.delete(at, answer.value[1].version), requests.delete(path)]
                await self._requester.one(requests.multi(parts), deadline)
                return
            if answer.error is not None and not answer.failed(NoNode):
                return
        await self._requester.one(requests.delete(path), deadline)


def _encoded(note: list[Any]) -> bytes:
    return json.dumps(note, ensure_ascii=False).encode()


def _note(data: bytes) -> list[Any]:
    try:
        note = json.loads(data)
        return [str(note[0]), float(note[1])]
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return ["", 0.0]
