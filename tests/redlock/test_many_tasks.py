"""Many tasks, and programs that are too busy to read: a node is not to blame for a reply that nobody has read."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from interlock import aio
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.aio import MAX_VOTES, AsyncQuorumTransport
from interlock.backends.redlock.wire.packed import NodeIdentity, PackedVote
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import steady
from tests.patience import PATIENCE
from tests.redlock.colours import run, started

BUSY = 0.8  # seconds: longer than a round waits for nodes, shorter than a round may last


def test_more_tasks_than_can_be_served_at_once_take_turns() -> None:
    tasks, most = 8 * MAX_VOTES, 0

    async def main() -> None:
        async with aio.connect(steady(3).url(f"{uuid4().hex}:"), ttl=60.0) as client:
            async with client.lock("first"):
                pass
            transport = client._core.store._quorum.transport  # type: ignore[attr-defined]
            send = transport._send

            def sent(asked: Any, packed: Any, to: Any) -> None:
                nonlocal most
                most = max(most, sum(type(one._packed) is PackedVote for one in transport._exchanges))
                send(asked, packed, to)

            transport._send = sent

            async def pair(n: int) -> None:
                async with client.lock(f"name {n}", timeout=PATIENCE):
                    pass

            done = await asyncio.gather(*[pair(n) for n in range(tasks)], return_exceptions=True)
            assert [one for one in done if one is not None] == []

    asyncio.run(main())
    assert 1 < most <= MAX_VOTES


def test_a_task_that_is_cancelled_in_its_turn_leaves_it_to_the_next() -> None:
    async def main(store: RedlockStore) -> None:
        await started(store)
        transport = store._quorum.transport
        assert isinstance(transport, AsyncQuorumTransport)
        slots = transport._vote_slots
        slots.taken = MAX_VOTES
        waiting = [asyncio.create_task(store.claim(Claim(f"n{n}", "a", 60.0))) for n in range(3)]
        while len(slots.waiting) < 3:
            await asyncio.sleep(0)
        waiting[0].cancel()
        slots.give_back()  # to the first that still waits
        waiting[1].cancel()  # which has it, and does not know yet
        assert isinstance(await asyncio.wait_for(waiting[2], PATIENCE), Granted)
        with pytest.raises(StoreUnavailable, match=f"{MAX_VOTES} claims are asking"):
            slots.taken = MAX_VOTES
            await store.claim(Claim("n3", "a", 60.0), 0.05)

    run("async", steady(3).url(f"{uuid4().hex}:"), main)


def test_a_loop_that_was_busy_reads_the_replies_before_it_blames_the_nodes() -> None:
    async def main(store: RedlockStore) -> None:
        await started(store)
        asked = [asyncio.create_task(store.claim(Claim(f"n{n}", "a", 60.0))) for n in range(20)]
        await asyncio.sleep(0)  # they have asked
        time.sleep(BUSY)
        assert {type(await one) for one in asked} == {Granted}

    run("async", steady(3).url(f"{uuid4().hex}:"), main)


def test_a_thread_that_was_busy_reads_the_replies_before_it_blames_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_hash, asked = PackedVote.by_hash, 0

    def slow(self: PackedVote, identity: NodeIdentity, node: int) -> bytes:
        nonlocal asked
        asked += 1
        # Before the last request of the round is sent: the others have answered when the thread goes on.
        if asked == 3:
            time.sleep(BUSY)
        return by_hash(self, identity, node)

    async def main(store: RedlockStore) -> None:
        await started(store)
        monkeypatch.setattr(PackedVote, "by_hash", slow)
        assert isinstance(await store.claim(Claim("x", "a", 60.0)), Granted)

    run("sync", steady(3).url(f"{uuid4().hex}:"), main)
