"""Writes to etcd that happen only if the token of a lease is not too low.

    guard = guards.etcd.Guard("etcd://h1,h2,h3")
    with client.lock("config") as lease:
        guard.accept(lease)                        # before you read what you are about to change
        guard.put(lease, "/app/config", b"...")

The key of a resource holds the highest token that was accepted for it, and the id of the call that wrote it.
A call reads that key, and one Txn notes its own token and writes, if nobody has written the key since:
nothing can come between. So a copy of a request that arrives late, or twice, writes nothing. The lock itself
may live in any store.
"""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock._core.presented import presented
from interlock.errors import StaleToken, StoreUnavailable, StoreUnfit
from interlock.store import IO_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.etcd.transport.cluster import ClusterTransport

__all__ = ["AsyncGuard", "Guard"]

Text: TypeAlias = "str | bytes"
TOKEN_DIGITS = 20  # digits of a token as it is stored: etcd compares values byte by byte


_guards: weakref.WeakSet[_Guard] = weakref.WeakSet()


def _after_fork() -> None:
    """Give the child connections of its own: on a shared one each process would read the other's answers."""
    for guard in list(_guards):
        guard._transport.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Guard:
    """What both guards share: the Txn, and what its answer means."""

    def __init__(self, url: str, *, asynchronous: bool) -> None:
        from interlock import urls
        from interlock.backends.etcd.address import address_of
        from interlock.backends.etcd.transport.credentials import Credentials

        parts, connect_timeout = urls.timed(urls.split(url))
        if parts.scheme not in ("etcd", "etcds"):
            raise ValueError("a guard of etcd takes a URL such as etcd://h1,h2,h3")
        address, prefix = address_of(parts, connect_timeout)
        self._base = prefix.rstrip("/").encode() + b"-guard/"
        credentials = Credentials(address.user, address.password)
        self._transport: ClusterTransport
        if asynchronous:
            from interlock.backends.etcd.transport.aio import AsyncTransport

            self._transport = AsyncTransport(address, credentials)
        else:
            from interlock.backends.etcd.transport.blocking import BlockingTransport

            self._transport = BlockingTransport(address, credentials)
        _guards.add(self)

    def key(self, resource: str) -> bytes:
        """Return the key that holds the highest accepted token of a resource."""
        from interlock.backends.etcd.wire.keys import escaped

        return self._base + escaped(resource)

    async def _write(
        self, lease: Lease | str, token: int | None, values: Mapping[Text, Text | None], timeout: float
    ) -> int:
        from interlock.backends.etcd.wire import messages
        from interlock.backends.kit.deadline import Deadline

        shown, call = presented(lease, token), secrets.token_hex(8).encode()
        mark = self.key(shown.resource)
        writes = _writes({mark: b"%0*d %b" % (TOKEN_DIGITS, shown.token, call), **values})
        look = messages.get(mark)
        transport, unsure = self._transport, list[bool]()
        deadline = Deadline(time.monotonic, timeout, transport.address.connect_timeout)
        kvs = messages.RangeAnswer.of(await transport.call(messages.RANGE, look, deadline)).kvs
        while True:
            stored = kvs[0].value if kvs else b"0"
            if stored.endswith(b" " + call):
                return kvs[0].modified
            if unsure:
                raise StoreUnavailable(
                    f"{shown.resource}: the write may have been applied: its answer was lost, and others "
                    "have written since; read what it wrote"
                )
            try:
                accepted = int(stored[:TOKEN_DIGITS])
            except ValueError:
                raise StoreUnfit(
                    f"{mark!r} holds no token of a guard; use another prefix, or delete the key"
                ) from None
            if accepted > shown.token:
                raise StaleToken(shown.resource, shown.token, accepted)
            seen = messages.compare_mod_revision(mark, kvs[0].modified if kvs else 0)
            request = messages.txn([seen], writes, [messages.get_op(look)])
            answer = messages.TxnAnswer(
                await transport.call(messages.TXN, request, deadline, unsure=lambda: unsure.append(True))
            )
            if answer.succeeded:
                return answer.header.revision
            kvs = answer.ranged(0).kvs

    async def _read(self, key: Text, timeout: float) -> bytes | None:
        from interlock.backends.etcd.wire.messages import RANGE, RangeAnswer, get

        kvs = RangeAnswer.of(await self._transport.ask(RANGE, get(_bytes(key)), timeout)).kvs
        return kvs[0].value if kvs else None


class Guard(_Guard):
    """Writes to etcd under the token of a lease. The URL is that of the store, with its prefix."""

    def __init__(self, url: str) -> None:
        super().__init__(url, asynchronous=False)

    def accept(self, lease: Lease | str, *, token: int | None = None) -> int:
        """Note the token before you read, and return the revision: from now on lower ones are refused.

        Raises `StaleToken` if it is too low itself. Otherwise a late holder could write after your read.
        """
        return drive(self._write(lease, token, {}, IO_TIMEOUT), nested=True)

    def put(self, lease: Lease | str, key: Text, value: Text, *, token: int | None = None) -> int:
        """Write one key, and return the revision; raise `StaleToken`, and write nothing, if the token is too
        low.

        In place of a lease, give a resource and `token=`.
        """
        return drive(self._write(lease, token, {key: _bytes(value)}, IO_TIMEOUT), nested=True)

    def write(
        self, lease: Lease | str, values: Mapping[Text, Text | None], *, token: int | None = None
    ) -> int:
        """Write several keys in one step, and delete those whose value is None; return the revision."""
        return drive(self._write(lease, token, values, IO_TIMEOUT), nested=True)

    def get(self, key: Text) -> bytes | None:
        """Return the value of a key; None if it does not exist."""
        return drive(self._read(key, IO_TIMEOUT), nested=True)

    def close(self) -> None:
        """Close the connection."""
        drive(self._transport.close(), nested=True)


class AsyncGuard(_Guard):
    """Writes to etcd under the token of a lease. The URL is that of the store, with its prefix."""

    def __init__(self, url: str) -> None:
        super().__init__(url, asynchronous=True)

    async def accept(self, lease: Lease | str, *, token: int | None = None) -> int:
        """Note the token before you read, and return the revision: from now on lower ones are refused.

        Raises `StaleToken` if it is too low itself. Otherwise a late holder could write after your read.
        """
        return await self._write(lease, token, {}, IO_TIMEOUT)

    async def put(self, lease: Lease | str, key: Text, value: Text, *, token: int | None = None) -> int:
        """Write one key, and return the revision; raise `StaleToken`, and write nothing, if the token is too
        low.

        In place of a lease, give a resource and `token=`.
        """
        return await self._write(lease, token, {key: _bytes(value)}, IO_TIMEOUT)

    async def write(
        self, lease: Lease | str, values: Mapping[Text, Text | None], *, token: int | None = None
    ) -> int:
        """Write several keys in one step, and delete those whose value is None; return the revision."""
        return await self._write(lease, token, values, IO_TIMEOUT)

    async def get(self, key: Text) -> bytes | None:
        """Return the value of a key; None if it does not exist."""
        return await self._read(key, IO_TIMEOUT)

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()


def _writes(values: Mapping[Text, Text | None]) -> list[bytes]:
    """The operations of a Txn that write these values, and delete the keys whose value is None."""
    from interlock.backends.etcd.wire.messages import delete_op, put, put_op

    return [
        delete_op(_bytes(key)) if value is None else put_op(put(_bytes(key), _bytes(value)))
        for key, value in values.items()
    ]


def _bytes(text: Text) -> bytes:
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"keys and values are str or bytes, not {type(text).__name__}")
    return text.encode() if isinstance(text, str) else text
