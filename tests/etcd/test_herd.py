"""One hand-off costs the same number of requests however many wait, counted at the servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from statistics import median
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.testing.servers.etcd import EtcdCluster, running

"""Sent by clients whether or not anything is handed on. (A keep-alive is confirmed by a Range, which is counted.)"""

ASLEEP = 1.2  # seconds; longer than `LONG_WAIT`, after which a waiter asks once more
DONE = 0.2  # seconds after a hand-off
LOOKS = 4
HAND_OFFS = 7


async def asleep(cluster: EtcdCluster, seconds: float) -> Counter[str]:
    """What was received, once nothing more has come for so long (but for the Range of a keep-alive).

    In several looks: on a busy machine, they are as late as the waiters are.
    """
    loop = asyncio.get_running_loop()
    seen, since, looks = await asyncio.to_thread(cluster.received), loop.time(), 0
    while loop.time() - since < seconds or looks < LOOKS:
        await asyncio.sleep(0.05)
        now, looks = await asyncio.to_thread(cluster.received), looks + 1
        if (now - seen).total() > 1:
            since, looks = loop.time(), 0
        seen = now
    return seen


async def handed_on(cluster: EtcdCluster, waiters: int, hand_offs: int = HAND_OFFS) -> list[Counter[str]]:
    """The messages of each hand-off, while `waiters` wait. Two clients: one that holds first, and those who wait."""
    url = cluster.url(prefix := f"{uuid4().hex}/")
    async with aio.connect(url, ttl=60) as ours, aio.connect(url, ttl=60) as theirs:
        first = await theirs.lock("x").acquire()
        assert first
        held: asyncio.Queue[aio.Lease] = asyncio.Queue()

        async def stand() -> None:
            lease = await ours.lock("x").acquire()
            assert lease
            held.put_nowait(lease)

        tasks = [asyncio.create_task(stand()) for _ in range(waiters)]
        await asleep(cluster, ASLEEP)
        keys = await asyncio.to_thread(cluster.ctl, "get", "--prefix", "--keys-only", prefix)
        assert len(keys.split()) == 1 + waiters
        seen = await asyncio.to_thread(cluster.received)
        costs: list[Counter[str]] = []
        lease = first
        for _ in range(hand_offs):
            await lease.release()
            lease = await held.get()
            now = await asleep(cluster, DONE)
            costs.append(now - seen)
            seen = now
        await lease.release()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return costs


@pytest.mark.slow
def test_the_cost_of_a_hand_off_does_not_grow_with_the_queue() -> None:
    """Whatever clients send in the background falls into one hand-off or another; a herd comes with each of them."""
    with running() as cluster:
        costs = {waiters: asyncio.run(handed_on(cluster, waiters)) for waiters in (8, 32, 256)}
    usual = {waiters: median(cost.total() for cost in found) for waiters, found in costs.items()}
    # Each: a release, a look, two watches that are closed, a mark of the admission. Those who wait behind hear nothing.
    assert max(usual.values()) <= 5, costs
    assert usual[256] <= usual[8] + 1, costs


def test_a_hand_off_to_the_only_waiter_is_told_by_the_event_alone() -> None:
    """A release, two watches that are closed, and a mark for operators if the wait was long. No look."""
    with running() as cluster:
        costs = [asyncio.run(handed_on(cluster, 1, hand_offs=1))[0] for _ in range(2)]
    assert min(cost["Range"] for cost in costs) == 0, costs  # a keep-alive may have one
    assert min(cost.total() for cost in costs) <= 4, costs


def test_an_uncontended_pair_is_two_requests() -> None:
    with running(1) as cluster, interlock.connect(cluster.url(), ttl=60) as client:
        for _ in range(2):
            with client.lock("x"):
                pass
        before = cluster.received()
        for _ in range(20):
            with client.lock("x"):
                pass
        assert (cluster.received() - before).total() == 40
