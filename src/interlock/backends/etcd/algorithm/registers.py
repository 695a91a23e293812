"""Registers: the version is the revision of the last write, so it rises across deletions and never
repeats.
"""

from __future__ import annotations

from interlock.backends.etcd.algorithm.keeping import tombstone_lease
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.algorithm.waits import sleep_while
from interlock.backends.etcd.errors import LeaseNotFound
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire.messages import (
    RANGE,
    RangeAnswer,
    compare_mod_revision,
    get,
    get_op,
    put,
    put_op,
    txn,
)
from interlock.backends.etcd.wire.values import register_read, register_value
from interlock.backends.etcd.wire.watching import Watched
from interlock.backends.kit.deadline import Deadline
from interlock.model import Versioned


async def read(side: Side, name: str, timeout: float) -> Versioned:
    deadline = await side.begin(timeout)
    kvs = (await side.range(get(side.keys.register(name)), deadline)).kvs
    if not kvs:
        return Versioned(None, 0)
    return Versioned(register_read(kvs[0].value)[1], kvs[0].modified)


async def compare_and_set(
    side: Side, name: str, version: int, value: str | None, id: str, timeout: float
) -> Versioned | None:
    deadline = await side.begin(timeout)
    try:
        return await _write(side, name, version, value, id, deadline)
    except LeaseNotFound:  # the lease for what vanishes was revoked by somebody
        side.sessions.tombstone_lease = None
        return await _write(side, name, version, value, id, deadline)


async def _write(
    side: Side, name: str, version: int, value: str | None, id: str, deadline: Deadline
) -> Versioned | None:
    key = side.keys.register(name)
    # A deleted register stays for a minute or two, so that nobody who watches it misses that.
    lease = await tombstone_lease(side, deadline) if value is None else 0
    answer = await side.txn(
        txn(
            [compare_mod_revision(key, version)],
            [put_op(put(key, register_value(id, value), lease))],
            [get_op(get(key))],
        ),
        deadline,
        again=False,  # the core repeats it, which must know that the first copy may have counted
    )
    if answer.succeeded:
        return Versioned(value, answer.header.revision)
    kvs = answer.ranged(0).kvs
    if not kvs:
        return None
    writer, stored = register_read(kvs[0].value)
    return Versioned(stored, kvs[0].modified) if writer == id else None


async def watch(side: Side, name: str, version: int, timeout: float) -> None:
    """Wait until a register has another version, or the time is up."""
    key = side.keys.register(name)

    async def same(connection: MemberConnection, deadline: Deadline) -> bool:
        answer = await connection.call(RANGE, get(key), max(connection.least, deadline.for_request()))
        kvs = RangeAnswer.of(answer).kvs
        return (kvs[0].modified if kvs else 0) == version

    await sleep_while(side, [Watched(key)], same, timeout)
