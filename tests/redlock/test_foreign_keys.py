"""Keys of other programs on the nodes of a quorum: left alone unless an operator says otherwise, and shown to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.errors import ForeignKey
from interlock.testing.servers.redlock import say, steady
from tests.redlock.colours import COLOURS, holders

SECRET = "hunter2"


def evicted(colour: str, prefix: str, **how: Any) -> Sequence[Any]:
    """Whom an eviction of x met."""

    async def main() -> Sequence[Any]:
        async with aio.connect(steady().url(prefix)) as client:
            return await client.evict("x", reason="a drill", **how)

    if colour == "async":
        return asyncio.run(main())
    with interlock.connect(steady().url(prefix)) as client:
        return client.evict("x", reason="a drill", **how)


def placed(prefix: str, *nodes: int, expires: bool = True) -> None:
    """Have another program keep something under x on these nodes."""
    for node in nodes:
        expiry = ("PX", "30000") if expires else ()
        assert say(steady()[node], "SET", f"{prefix}x", SECRET, *expiry) == b"OK"


def left(prefix: str) -> list[int]:
    """The nodes that have the other program's key."""
    found = [say(server, "GET", f"{prefix}x") for server in steady().all]
    return [node for node, value in enumerate(found) if value == SECRET.encode()]


@COLOURS
def test_what_another_program_keeps_on_a_majority_is_evicted_only_on_request(colour: str) -> None:
    prefix = f"{uuid4().hex}:"
    placed(prefix, 0, 1, 2)
    with interlock.connect(steady().url(prefix)) as client:
        (holder,) = client.inspect("x").holders
        assert holder.foreign
        assert SECRET not in repr(holder)
    with pytest.raises(ForeignKey) as refused:
        evicted(colour, prefix)
    assert (refused.value.kind, refused.value.expires) == ("string", True)
    assert left(prefix) == [0, 1, 2]
    (met,) = evicted(colour, prefix, foreign=True)
    assert met.foreign
    assert left(prefix) == []


@COLOURS
def test_what_never_lapses_is_evicted_only_by_who_says_both(colour: str) -> None:
    prefix = f"{uuid4().hex}:"
    placed(prefix, 0, 1, 2, expires=False)
    placed(prefix, 3)
    with pytest.raises(ForeignKey) as refused:
        evicted(colour, prefix, foreign=True)
    assert not refused.value.expires
    assert left(prefix) == [0, 1, 2, 3]  # also where it could have been removed
    assert len(evicted(colour, prefix, foreign=True, no_expiry=True)) == 1
    assert left(prefix) == []


@COLOURS
def test_a_lock_is_evicted_and_what_stands_on_a_minority_stays(colour: str) -> None:
    prefix = f"{uuid4().hex}:"
    with interlock.connect(steady().url(prefix)) as client, client.lock("first"):
        pass
    placed(prefix, 3, 4)
    with interlock.connect(steady().url(prefix)) as client:
        lease = client.lock("x").acquire()
        assert lease is not None
        assert holders(client, "x") == [lease.token]
        (met,) = evicted(colour, prefix)
        assert met.token == lease.token
        assert client.inspect("x").holders == ()
        assert left(prefix) == [3, 4]
        with pytest.raises(interlock.NotHeld):
            lease.release()


@COLOURS
def test_what_can_be_no_lock_is_left_alone(colour: str) -> None:
    prefix = f"{uuid4().hex}:"
    for server in steady().all:
        say(server, "RPUSH", f"{prefix}x", "a job")
    with pytest.raises(interlock.InterlockError):
        evicted(colour, prefix, foreign=True, no_expiry=True)
    assert [say(server, "LLEN", f"{prefix}x") for server in steady().all] == [1] * 5
