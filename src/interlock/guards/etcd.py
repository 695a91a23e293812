"""Writes to etcd that happen only if the token of a lease is not too low.

    guard = guards.etcd.Guard("etcd://h1,h2,h3")
    with client.lock("config") as lease:
        guard.put(lease, "/app/config", b"...")

One Txn compares the token with the highest one that was accepted for the resource, notes it, and writes: nothing can come between.
The lock itself may live in any store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock.errors import StaleToken
from interlock.guards.presented import presented
from interlock.ports import IO_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.etcd.transport.cluster import ClusterTransport

__all__ = ["AsyncGuard", "Guard"]

Text: TypeAlias = "str | bytes"
WIDTH = 20  # digits of a token as it is stored: etcd compares values byte by byte


class _Guard:
    """What both guards share: the Txn, and what its answer means."""

    def __init__(self, url: str, *, asynchronous: bool) -> None:
        from urllib.parse import urlsplit

        from interlock.backends.etcd.address import address_of
        from interlock.backends.etcd.transport.credentials import Credentials
        from interlock.ports import CONNECT_TIMEOUT

        parts = urlsplit(url)
        if parts.scheme not in ("etcd", "etcds"):
            raise ValueError("a guard of etcd takes a URL such as etcd://h1,h2,h3")
        address, prefix = address_of(parts, CONNECT_TIMEOUT)
        self._base = prefix.rstrip("/").encode() + b"-guard/"
        credentials = Credentials(address.user, address.password)
        self._transport: ClusterTransport
        if asynchronous:
            from interlock.backends.etcd.transport.aio import AsyncTransport

            self._transport = AsyncTransport(address, credentials)
        else:
            from interlock.backends.etcd.transport.blocking import BlockingTransport

            self._transport = BlockingTransport(address, credentials)

    def key(self, resource: str) -> bytes:
        """Return the key that holds the highest accepted token of a resource."""
        from interlock.backends.etcd.wire.keys import escaped

        return self._base + escaped(resource)

    async def _write(
        self, lease: Lease | str, token: int | None, values: Mapping[Text, Text | None], timeout: float
    ) -> int:
        from interlock.backends.etcd.wire.messages import (
            TXN,
            TxnAnswer,
            below,
            created_at,
            delete_op,
            get,
            get_op,
            put,
            put_op,
            txn,
            txn_op,
        )

        shown = presented(lease, token)
        mark = self.key(shown.resource)
        writes = [put_op(put(mark, b"%0*d" % (WIDTH, shown.token)))]
        for key, value in values.items():
            writes.append(
                delete_op(_bytes(key)) if value is None else put_op(put(_bytes(key), _bytes(value)))
            )
        # An absent key is not below anything: the first token of a resource needs a comparison of its own.
        known = txn([below(mark, b"%0*d" % (WIDTH, shown.token + 1))], writes, [get_op(get(mark))])
        request = txn([created_at(mark, 0)], writes, [txn_op(known)])
        answer = TxnAnswer(await self._transport.ask(TXN, request, timeout))
        if not answer.succeeded:
            inner = answer.nested(0)
            if not inner.succeeded:
                kvs = inner.ranged(0).kvs
                raise StaleToken(shown.resource, shown.token, int(kvs[0].value) if kvs else 0)
        return answer.header.revision

    async def _read(self, key: Text, timeout: float) -> bytes | None:
        from interlock.backends.etcd.wire.messages import RANGE, RangeAnswer, get

        kvs = RangeAnswer.of(await self._transport.ask(RANGE, get(_bytes(key)), timeout)).kvs
        return kvs[0].value if kvs else None


class Guard(_Guard):
    """Writes to etcd under the token of a lease. The URL is that of the store, with its prefix."""

    def __init__(self, url: str) -> None:
        super().__init__(url, asynchronous=False)

    def put(self, lease: Lease | str, key: Text, value: Text, *, token: int | None = None) -> int:
        """Write one key, and return the revision; raise `StaleToken`, and write nothing, if the token is too low.

        In place of a lease, give a resource and `token=`.
        """
        return drive(self._write(lease, token, {key: value}, IO_TIMEOUT), nested=True)

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

    async def put(self, lease: Lease | str, key: Text, value: Text, *, token: int | None = None) -> int:
        """Write one key, and return the revision; raise `StaleToken`, and write nothing, if the token is too low.

        In place of a lease, give a resource and `token=`.
        """
        return await self._write(lease, token, {key: value}, IO_TIMEOUT)

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


def _bytes(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text
