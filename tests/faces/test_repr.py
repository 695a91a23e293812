"""What a developer sees in a debugger: the name, the state, and never a request to the store."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.testing.conformance import got

KINDS: dict[str, tuple[Any, str]] = {
    "lock": (lambda client: client.lock("x"), r"<unlocked {p}\.Lock object 'x' at 0x\w+>"),
    "rlock": (lambda client: client.rlock("x"), r"<unlocked {p}\.RLock object 'x' at 0x\w+>"),
    "read": (lambda client: client.rwlock("x").read(), r"<unlocked {p}\.ReadLock object 'x' at 0x\w+>"),
    "write": (lambda client: client.rwlock("x").write(), r"<unlocked {p}\.WriteLock object 'x' at 0x\w+>"),
    "rwlock": (lambda client: client.rwlock("x"), r"<{p}\.RWLock 'x' at 0x\w+>"),
    "semaphore": (lambda client: client.semaphore("x", 3), r"<{p}\.Semaphore at 0x\w+ 'x': value=3>"),
    "bounded": (
        lambda client: client.bounded_semaphore("x", 3),
        r"<{p}\.BoundedSemaphore at 0x\w+ 'x': value=3/3>",
    ),
    "multilock": (
        lambda client: client.multilock(["x", "y"]),
        r"<unlocked {p}\.MultiLock object \['x', 'y'\] at 0x\w+>",
    ),
    "election": (lambda client: client.election("x"), r"<{p}\.Election 'x' at 0x\w+: not leading>"),
    "register": (lambda client: client.register("x"), r"<{p}\.Register 'x' at 0x\w+>"),
    "event": (lambda client: client.event("x"), r"<{p}\.Event at 0x\w+ 'x': unset>"),
    "latch": (lambda client: client.latch("x", 2), r"<{p}\.Latch at 0x\w+ 'x': from 2>"),
    "barrier": (lambda client: client.barrier("x", 2), r"<{p}\.Barrier at 0x\w+ 'x': waiters=0/2>"),
    "client": (lambda client: client, r"<{p}\.Client memory://shown at 0x\w+: 0 leases>"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_shows_its_name_and_state_in_both_faces(kind: str) -> None:
    make, pattern = KINDS[kind]
    for package, connect in (("interlock", interlock.connect), ("interlock.aio", aio.connect)):
        shown = repr(make(connect("memory://shown")))
        assert re.fullmatch(pattern.replace("{p}", re.escape(package)), shown), shown


def test_what_is_held_shows_it_and_what_was_lost_does_not() -> None:
    with interlock.connect("memory://held") as client:
        lock, semaphore = client.lock("x"), client.semaphore("s", 3)
        lease = lock.acquire()
        semaphore.acquire(permits=2)
        assert repr(lock).startswith("<locked interlock.Lock object 'x'")
        assert repr(semaphore).endswith("'s': value=1>")
        assert repr(lease) == f"<Lease 'x' token={lease.token} held>" if lease else False
        assert "2 leases" in repr(client)
        client.evict("x", reason="a drill")
        with pytest.raises(interlock.LeaseLost):
            lock.release()
        assert repr(lock).startswith("<unlocked")
        semaphore.release(2)
    assert repr(client).endswith("closed>")


def test_a_client_shows_its_store_on_one_line() -> None:
    with interlock.connect("memory://two\nlines\x1b[31m") as client:
        assert repr(client).isprintable()


def test_a_value_and_a_multilease_show_what_they_are() -> None:
    async def main() -> None:
        async with aio.connect("memory://values") as client:
            taken = await got(client.multilock(["a", "b"]).acquire())
            assert repr(taken) == f"<MultiLease {taken.tokens}>"
            await taken.release()
            assert repr(await client.register("x").read()) == "Value(None, version=0)"

    asyncio.run(main())
