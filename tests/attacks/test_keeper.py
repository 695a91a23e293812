"""Attacks on the keeper: it runs wherever its client is used, and sleeps when nothing is due."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest

from interlock import aio
from tests.attacks.stage import Stage


def test_a_client_whose_keeper_is_a_task_can_be_made_before_any_loop_runs() -> None:
    client = aio.connect("memory://", keeper="task")

    async def main() -> None:
        async with client, client.lock("x", ttl=0.3) as lease:
            await asyncio.sleep(0.5)
            lease.check()

    asyncio.run(main())


def test_a_keeper_that_is_a_task_goes_on_in_the_next_loop() -> None:
    client = aio.connect("memory://", keeper="task")

    async def hold() -> None:
        async with client.lock("x", ttl=0.3) as lease:
            await asyncio.sleep(0.5)
            lease.check()

    asyncio.run(hold())
    asyncio.run(hold())
    asyncio.run(client.close())


@pytest.mark.parametrize("how", ["let go", "granted while it was closed"])
def test_a_lease_that_is_over_but_was_never_dropped_does_not_keep_the_keeper_busy(how: str) -> None:
    stage = Stage()
    lease = stage.client.lock("x", ttl=0.05).acquire()
    assert lease
    lease._let_go()
    if how != "let go":
        lease._holding.discharge(lease)
        stage.core.keeper.keep(lease)
    time.sleep(0.1)  # past its deadline
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(0.5)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2
    assert lease not in stage.core.keeper.kept()
    stage.client.close()
