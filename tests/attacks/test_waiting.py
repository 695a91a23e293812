"""Attacks on waiting: a store that cannot wait, and tasks that end with the acquire they were made of."""

from __future__ import annotations

import asyncio

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnavailable
from tests.attacks.stage import Stage, raises, space


def test_a_store_that_answers_but_cannot_wait_is_not_asked_without_end() -> None:
    shared = space()
    holder, waiter = Stage(shared=shared), Stage(shared=shared)
    with holder.client.lock("x"):
        waiter.store.before["wait"] = raises(StoreUnavailable("the subscription broke"))
        assert waiter.client.lock("x").acquire(timeout=0.5) is None
    assert waiter.store.asked.count("claim") < 50
    waiter.client.close()
    holder.client.close()


@pytest.mark.xfail(
    strict=True,
    reason="gather, create_task and (before 3.12) wait_for make a task of acquire: it is dead when it returns, "
    "so its lease is not renewed; its holder must call lease.adopt()",
)
def test_a_lease_taken_by_a_task_made_of_its_acquire_is_renewed() -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            (lease,) = await asyncio.gather(client.lock("x", ttl=0.2).acquire())
            assert lease
            await asyncio.sleep(0.5)
            assert lease.state is interlock.State.HELD

    asyncio.run(main())
