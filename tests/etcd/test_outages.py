"""All members are away for a while: what waits with time left goes on waiting, whatever it waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.testing.servers.etcd import running
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.server


def second(found: Any) -> Any:
    """What comes after the first, which is the state now."""
    next(found)
    return next(found)


def waits(client: interlock.Client, url: str) -> dict[str, Callable[[], Any]]:
    async def event() -> bool:
        async with aio.connect(url) as other:
            return bool(await other.event("event").wait(PATIENCE))

    return {
        "event": lambda: client.event("event").wait(PATIENCE),
        "event, async": lambda: asyncio.run(event()),
        "latch": lambda: client.latch("latch", 1).wait(PATIENCE),
        "barrier": lambda: client.barrier("barrier", 2).wait(PATIENCE) in (0, 1),
        "register": lambda: second(client.register("register").watch(PATIENCE)).value,
        "election": lambda: second(client.election("election").observe(PATIENCE)).value,
        "queue": lambda: second(client.watch("queue", PATIENCE)).holders,
        "lock": lambda: client.lock("lock", timeout=PATIENCE).acquire(),
    }


def test_waits_outlast_an_outage_of_all_members() -> None:
    with running(1) as cluster:
        url = cluster.url()
        with interlock.connect(url, ttl=60) as client, interlock.connect(url, ttl=60) as other:
            election, held = other.election("election"), other.lock("lock").acquire()
            election.campaign("first")
            assert held
            ended: dict[str, Any] = {}

            def run(name: str, wait: Callable[[], Any]) -> None:
                try:
                    ended[name] = wait()
                except interlock.InterlockError as error:
                    ended[name] = error

            threads = [
                threading.Thread(target=run, args=item, daemon=True) for item in waits(client, url).items()
            ]
            for thread in threads:
                thread.start()
            until(lambda: other.inspect("lock").waiters and other.barrier("barrier", 2).n_waiting)
            [member] = cluster.members
            member.kill()
            threads[0].join(1.0)  # for so long the outage lasts, if nothing ends
            member.start()
            cluster.await_leader()
            assert ended == {}
            other.event("event").set()
            other.latch("latch", 1).count_down()
            other.register("register").update(lambda _: "written")
            election.proclaim("second")
            other.lock("queue").acquire()
            held.release()
            other.barrier("barrier", 2).wait(PATIENCE)
            for thread in threads:
                thread.join(PATIENCE)
            assert len(ended) == len(threads)
            failed = {
                name: found for name, found in ended.items() if isinstance(found, Exception) or not found
            }
            assert not failed
