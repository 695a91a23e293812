"""One hand-off costs the same number of requests however many wait, counted at the servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from urllib.request import urlopen
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from tests.etcd.cluster import EtcdCluster, running

HANDLED = re.compile(
    r'^grpc_server_msg_received_total\{grpc_method="(\w+)",grpc_service="etcdserverpb\.\w+",grpc_type="\w+"\} (\S+)$',
    re.MULTILINE,
)


def received(cluster: EtcdCluster) -> int:
    """How many messages all members have received from clients."""
    total = 0.0
    for member in cluster.members:
        with urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=10) as answer:
            for method, number in HANDLED.findall(answer.read().decode()):
                if method != "Status":
                    total += float(number)
    return int(total)


async def handed_on(url: str, waiters: int, hand_offs: int, count: Callable[[], int]) -> float:
    """Messages for each hand-off, while `waiters` wait. Two clients: those who wait, and one that holds first."""
    async with aio.connect(url, ttl=60) as ours, aio.connect(url, ttl=60) as theirs:
        first = await theirs.lock("x").acquire()
        assert first
        gate, done = asyncio.Event(), asyncio.Semaphore(0)

        async def stand() -> None:
            lock = ours.lock("x")
            await lock.acquire()
            await gate.wait()
            await lock.release()
            done.release()
            if done._value >= hand_offs:
                gate.clear()

        tasks = [asyncio.create_task(stand()) for _ in range(waiters)]
        while len((await theirs.inspect("x")).waiters) < waiters:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # let all of them fall asleep
        gate.set()
        before = count()
        await first.release()
        while done._value < hand_offs:
            await asyncio.sleep(0.005)
        after = count()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return float((after - before) / (hand_offs + 1))


@pytest.mark.slow
def test_the_cost_of_a_hand_off_does_not_grow_with_the_queue() -> None:
    with running() as cluster:
        costs: dict[int, float] = {}
        for waiters in (8, 32, 256):
            url = cluster.url(f"{uuid4().hex}/")
            costs[waiters] = asyncio.run(handed_on(url, waiters, 6, lambda: received(cluster)))
        # Each: a release, an event, a look, and the watches that are closed. The waiters behind hear nothing.
        assert max(costs.values()) <= 8, costs
        assert costs[256] <= costs[8] + 2, costs
        print(costs)


def test_an_uncontended_pair_is_two_requests() -> None:
    with running(1) as cluster, interlock.connect(cluster.url(), ttl=60) as client:
        for _ in range(2):
            with client.lock("x"):
                pass
        before = received(cluster)
        for _ in range(20):
            with client.lock("x"):
                pass
        assert received(cluster) - before == 40
