"""Requests and replies are lost, and connections are cut or swallow everything, between real sockets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.testing.lag import Lag, at_most
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server, running
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.chaos


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def prefix() -> str:
    return f"{uuid4().hex}:"


def test_a_lost_reply_is_answered_by_asking_again(server: Server, proxy: Proxy, prefix: str) -> None:
    client, direct = (
        interlock.connect(proxy.through(server.url(prefix))),
        interlock.connect(server.url(prefix)),
    )
    with client.lock("warm"):
        pass
    for cut_at in ("acquire", "release"):
        if cut_at == "acquire":
            proxy.replies.cut()
        lease = client.lock("x").acquire(timeout=PATIENCE)
        assert lease
        (holder,) = direct.inspect("x").standings
        assert holder.token == lease.token
        if cut_at == "release":
            proxy.replies.cut()
        lease.release()
        assert direct.inspect("x").standings == ()
    client.close()
    direct.close()


def test_a_black_holed_holder_knows_before_the_next_gets_in(
    server: Server, proxy: Proxy, prefix: str
) -> None:
    holder, other = (
        interlock.connect(proxy.through(server.url(prefix)), ttl=1),
        interlock.connect(server.url(prefix), ttl=1),
    )
    lost_at: list[float] = []
    lease = holder.lock("x", on_lost=lambda _: lost_at.append(time.monotonic())).acquire()
    assert lease
    proxy.set("hole")
    with Lag() as lag, other.lock("x", timeout=PATIENCE) as after:
        entered = time.monotonic()
        assert lease.state is interlock.State.LOST
        assert after.token > lease.token
    until(lambda: lost_at)
    assert lost_at[0] - lag.seconds <= entered + 0.05
    with pytest.raises(LeaseLost):
        lease.check()
    proxy.heal()
    holder.close()
    other.close()


def test_a_call_into_a_black_hole_ends_in_its_time(server: Server, proxy: Proxy, prefix: str) -> None:
    client = interlock.connect(proxy.through(server.url(prefix)))
    with client.lock("warm"):
        pass
    proxy.set("hole")
    with at_most(0.5 + 0.25 + 0.5):
        with pytest.raises(interlock.StoreUnavailable):
            client.lock("x").acquire(timeout=0.5)
    proxy.heal()
    client.close()


def test_a_waiter_gets_in_although_replies_are_lost_all_the_time(
    server: Server, proxy: Proxy, prefix: str
) -> None:
    client = interlock.connect(proxy.through(server.url(prefix)), ttl=5)
    inside, most, rounds = [0], [0], [0]
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.05):
            proxy.replies.cut()

    def enter() -> None:
        mine = 0
        while mine < 10:
            lock: Any = client.lock("x", timeout=PATIENCE)
            with suppress(StoreUnavailable), lock:  # two replies to one call may be lost
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                rounds[0] += 1
                mine += 1
                time.sleep(0.002)
                inside[0] -= 1

    with at_most(5, "a grant was told in a reply that was lost, and nobody looked"):
        cutter = threading.Thread(target=cut)
        cutter.start()
        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        stop.set()
        cutter.join()
        proxy.heal()
        assert (most[0], rounds[0]) == (1, 40)
    with interlock.connect(server.url(prefix)) as direct:
        until(lambda: not direct.inspect("x").standings)
    client.close()


def test_a_connection_that_did_not_answer_in_time_is_closed_with_its_client() -> None:
    """Somebody else waited on it for longer, so it was kept beside the next one."""

    async def main(server: Server) -> None:
        client = aio.connect(server.url())
        store = client._core.store
        await client.inspect("x")
        with server.frozen():
            patient = asyncio.create_task(store.inspect("x", 30.0))
            with pytest.raises(StoreUnavailable):
                await store.inspect("x", 0.2)
        await patient
        await client.inspect("x")
        await client.close()
        with redis.Redis(port=server.port) as admin:
            end = time.monotonic() + 10
            while len(admin.client_list()) > 1:
                assert time.monotonic() < end, admin.client_list()
                await asyncio.sleep(0.01)

    with running() as server:
        asyncio.run(main(server))
