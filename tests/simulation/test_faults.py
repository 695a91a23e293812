"""A faulty link between a real client and its store, as a user's tests would use it."""

from __future__ import annotations

import asyncio

import pytest

from interlock import blocking
from interlock._core.client import Client
from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.backends.memory import MemoryStore, Space
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.testing import Faults, Faulty, Link


@pytest.fixture
def link() -> Link:
    return Link(Faults(latency=0.0))


@pytest.fixture
def client(link: Link) -> blocking.Client:
    runtime = Threads()
    store = MemoryStore(Space(runtime.now, runtime.mutex()), runtime)
    core = Client(
        Faulty(store, runtime, link), runtime, runtime, ttl=0.5, listener=None, lease_type=blocking.Lease
    )
    return blocking.Client(core)


def test_all_is_well_while_the_link_is(client: blocking.Client) -> None:
    with client.lock("r") as lease:
        lease.renew()
        assert client.lock("r").acquire(blocking=False) is None
    client.close()


def test_a_cut_link_loses_the_lease_in_time(client: blocking.Client, link: Link) -> None:
    lease = client.lock("r").acquire()
    assert lease is not None
    link.cut()
    assert lease.lost.wait(1.0), "nobody told the holder"
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(StoreUnavailable):
        client.lock("other").acquire(timeout=0)
    link.heal()
    with pytest.raises(LeaseLost):
        lease.release()
    client.close()


def test_a_lost_reply_is_answered_by_asking_again(client: blocking.Client, link: Link) -> None:
    link.faults = Faults(lose_reply=0.5, timeout=0.05, latency=0.0)
    link.random.seed(3)
    for _ in range(5):
        with client.lock("r", timeout=10):
            pass
    link.heal()
    client.close()


def test_requests_of_a_thread_and_of_a_task_share_a_link_but_do_not_wait_for_each_other(link: Link) -> None:
    """As those of an asyncio client and of its keeper's thread do."""

    async def main() -> None:
        tasks = Tasks()
        store = MemoryStore(Space(tasks.now, tasks.mutex()), tasks)
        here, there = Faulty(store, tasks, link), Faulty(store, Threads(), link)
        link.stalled_until = tasks.now() + 0.1  # so that all of them are on their way together
        asked = [asyncio.to_thread(drive, there.inspect("r")), here.inspect("r")] * 2
        assert all(not queue.standings for queue in await asyncio.gather(*asked))

    asyncio.run(main())
