"""The keeper has connections of its own: nobody's lease suffers because others take locks."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnavailable
from interlock.testing.lag import stretched
from interlock.testing.servers.redis import Server
from interlock.testing.servers.redlock import quorum, say, steady
from tests.patience import until
from tests.redlock.colours import COLOURS

THREADS = 40


def test_forty_threads_back_to_back_cost_no_lease() -> None:
    lost: list[str] = []
    broken: list[BaseException] = []
    pairs = [0] * THREADS
    ttl = min(5.0, stretched(1.5))
    ends = time.monotonic() + 1.5 * ttl

    def back_to_back(client: interlock.Client, number: int) -> None:
        try:
            while time.monotonic() < ends:
                with client.lock(f"t{number}", ttl=30):
                    pairs[number] += 1
        except BaseException as error:
            broken.append(error)

    with interlock.connect(steady().url(f"{uuid4().hex}:"), ttl=ttl) as client:
        locks = [client.lock(f"held{n}", on_lost=lambda lease: lost.append(lease.resource)) for n in range(5)]
        leases = [lock.acquire() for lock in locks]
        threads = [threading.Thread(target=back_to_back, args=(client, n)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not lost
        for lease in leases:
            assert lease is not None
            lease.check()
            lease.release()
    assert not broken
    assert min(pairs) > 0


def connections(server: Server) -> int:
    """How many there are, without the one that asks."""
    return len(say(server, "CLIENT", "LIST").splitlines()) - 1


@COLOURS
def test_the_keeper_is_connected_before_anything_is_granted(colour: str) -> None:
    with quorum(3) as servers:

        def seen() -> list[int]:
            return sorted(connections(server) for server in servers.all)

        async def main() -> list[int]:
            async with aio.connect(servers.url()) as client, client.lock("x"):
                return seen()

        if colour == "async":
            assert min(asyncio.run(main())[1:]) >= 2
            return
        with interlock.connect(servers.url()) as client, client.lock("x"):
            assert min(seen()[1:]) >= 2  # one for the client, one for its keeper; the third may come late


@COLOURS
def test_nothing_is_granted_that_could_not_be_renewed(colour: str) -> None:
    with quorum(3) as servers:

        def taken() -> None:
            with interlock.connect(servers.url()) as client, client.lock("x", ttl=2.0, timeout=1.0):
                pass

        async def taken_async() -> None:
            async with aio.connect(servers.url()) as client, client.lock("x", ttl=2.0, timeout=1.0):
                pass

        def enter() -> None:
            taken() if colour == "sync" else asyncio.run(taken_async())

        taken()
        redis: Any = import_module("redis")  # by name: beside tests/redis a type checker takes that for it
        with ExitStack() as stack:
            admins = [stack.enter_context(redis.Redis(port=server.port)) for server in servers.all]
            for admin in admins:
                admin.config_set("maxclients", len(admin.client_list()) + 1)
            with pytest.raises(StoreUnavailable, match="needs 2 of 3 nodes"):
                enter()
            for admin in admins:
                admin.config_set("maxclients", 1000)
                until_none(admin)
        enter()


def until_none(admin: Any) -> None:
    """Wait until nobody holds the lock: what could not be told to go lapses."""
    until(lambda: not admin.exists("x"))
