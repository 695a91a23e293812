"""Registers: one node each.

The version is the number of the transaction that wrote it last, which never comes again.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.kit.deadline import Deadline
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.errors import QUOTA, translated
from interlock.backends.zookeeper.library import BadVersion, NodeExists, NoNode
from interlock.backends.zookeeper.requester import within
from interlock.backends.zookeeper.side import Side
from interlock.errors import StoreUnavailable
from interlock.model import Versioned
from interlock.store import IO_TIMEOUT

DELETED_S = 600.0
"""Seconds for which a deleted register's node stays. Longer than any request can be on its way: the node's
own version starts at 0 again when it is made anew, and a late write must not take one incarnation for the
other.
"""

MAX_WRITE_ROUNDS = 10  # rounds of a write that others get in the way of


class Registers(Side):
    """The register half of the port."""

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        deadline = within(self._requester, timeout)
        await self._requester.connect(deadline)
        return (await self._read(name, deadline))[0]

    async def _read(self, name: str, deadline: Deadline) -> tuple[Versioned, str, Any]:
        """The value and version of a register, the id of its last write, and the Stat of its node."""
        read = await self._requester.data(self._paths.register(name), deadline)
        if read is None:
            return Versioned(None, 0), "", None
        value, writer = decode(read[0])
        return Versioned(value, read[1].mzxid), writer, read[1]

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        deadline = within(self._requester, timeout)
        await self._requester.connect(deadline)
        for _ in range(MAX_WRITE_ROUNDS):
            present, writer, stat = await self._read(name, deadline)
            if writer == id:
                return present  # sent before, and applied
            if present.version != version:
                return None
            written = await self._write(name, stat, value, id, deadline)
            if written:
                return Versioned(value, written)
        raise StoreUnavailable(f"{self._session_client.label}: others wrote {name} again and again")

    async def _write(self, name: str, stat: Any, value: str | None, id: str, deadline: Deadline) -> int:
        """Write over what was read; 0 if somebody else has written meanwhile."""
        path, data = self._paths.register(name), encode(value, id)
        if value is None:
            return await self._write_nothing(name, stat, data, deadline)
        if stat is None:
            request = requests.create(path, data, self._session_client.address.acl)
        else:
            request = requests.set_data(path, data, stat.version)
        answer = await self._requester.one(request, deadline)
        if answer.failed(NoNode) and stat is None:
            await self._requester.make_parents(self._paths.registers, deadline)
            return 0
        if answer.failed(NodeExists) or answer.failed(BadVersion) or answer.failed(NoNode):
            return 0
        got = answer.get()
        written: int = got[1].mzxid if stat is None else got.mzxid
        return written

    async def _write_nothing(self, name: str, stat: Any, data: bytes, deadline: Deadline) -> int:
        """Write that there is no value, and a note by which the node is swept later: in one step."""
        path, acl = self._paths.register(name), self._session_client.address.acl
        if stat is None:
            first = requests.create_in_multi(path, data, acl)
        else:
            first = requests.set_data(path, data, stat.version)
        for note in self._tombstones.deleting(
            name, DELETED_S
        ):  # a new note, or the one of an earlier deletion again
            results: list[Any] = (await self._requester.one(requests.multi([first, note]), deadline)).get()
            if not any(isinstance(result, Exception) for result in results):
                await self._tombstones.sweep(deadline)
                return results[0].mzxid if stat is not None else (await self._read(name, deadline))[0].version
            for result in results:
                if isinstance(result, QUOTA):
                    raise translated(self._session_client.label, result)
            if isinstance(results[0], NoNode) or isinstance(results[1], NoNode):
                await self._requester.make_parents(self._paths.registers, deadline)
                await self._tombstones.prepare(deadline)
                return 0
        return 0

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        deadline = within(self._requester, timeout)
        path = self._paths.register(name)
        try:
            await self._requester.connect(deadline, connecting_is_extra=False)
            bell = self._session_client.new_bell(self._requester.runtime.signal())
            try:
                # `exists`, because a register that is made must be heard of, too.
                answers = await self._requester.ask(
                    [requests.sync(path), requests.exists(path, bell)], deadline
                )
                stat = answers[1].get()
                if (0 if stat is None else stat.mzxid) == version:
                    await self._requester.runtime.wait(bell.signal, deadline.left())
            finally:
                self._session_client.forget_watcher(bell, [path])
        except StoreUnavailable:
            if not deadline.passed():
                raise


def encode(value: str | None, id: str) -> bytes:
    """The id of the write in one line, then the value; a register without a value begins with a minus."""
    return f"{'-' if value is None else '+'}{id}\n{value or ''}".encode()


def decode(data: bytes) -> tuple[str | None, str]:
    head, _, rest = data.decode(errors="replace").partition("\n")
    return rest if head.startswith("+") else None, head[1:]
