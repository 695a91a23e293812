"""When servers, networks and processes break: holders learn of it in time, tokens rise, waiters get in, nothing is left behind."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import redis

import interlock
from interlock import aio
from interlock._core.cohort import TOKENS_PER_GRANT
from interlock.backends.redis.address import Address
from interlock.errors import LeaseLost, StoreUnavailable, StoreUnfit
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import Server, running
from tests.environment import environment
from tests.patience import PATIENCE, until
from tests.redis.waiter import Waiter

pytestmark = pytest.mark.chaos


@pytest.fixture
def durable() -> Iterator[Server]:
    with running("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def forgetful() -> Iterator[Server]:
    with running() as server:
        yield server


def test_a_lease_outlives_a_crash_of_a_durable_server(durable: Server) -> None:
    client = interlock.connect(durable.url(), ttl=5)
    lease = client.lock("x").acquire()
    assert lease
    waiter = Waiter(client, "x")
    durable.restart()
    until(lambda: len(client.inspect("x").holders) == 1)
    lease.check()
    lease.release()
    waiter.join(PATIENCE)
    assert waiter.lease
    assert waiter.lease.token > lease.token
    waiter.lease.release()
    client.close()


def test_tasks_go_on_after_a_crash_of_a_durable_server(durable: Server) -> None:
    async def main() -> None:
        async with aio.connect(durable.url(), ttl=5) as client:
            lease = await client.lock("x").acquire()
            assert lease
            waiter = asyncio.create_task(client.lock("x", timeout=PATIENCE).acquire())
            while not (await client.inspect("x")).waiters:
                await asyncio.sleep(0.005)
            durable.restart()
            await lease.release()
            after = await waiter
            assert after
            assert after.token > lease.token
            await after.release()

    asyncio.run(main())


def test_a_holder_is_told_when_the_server_forgot_it_and_tokens_still_rise(forgetful: Server) -> None:
    lost = threading.Event()
    client = interlock.connect(forgetful.url(), ttl=1)
    lease = client.lock("x", on_lost=lambda _: lost.set()).acquire()
    assert lease
    forgetful.restart()
    assert lost.wait(PATIENCE)
    with pytest.raises(LeaseLost):
        lease.check()
    with client.lock("x", timeout=PATIENCE) as after:
        assert after.token > lease.token
    client.close()


def test_tokens_rise_and_waiters_get_in_after_flushall(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url(), ttl=2)
    lease = client.lock("x").acquire()
    assert lease
    waiter = Waiter(client, "x")
    with redis.Redis(port=forgetful.port) as admin:
        admin.flushall()
    waiter.join(PATIENCE)
    assert waiter.lease
    assert waiter.lease.token > lease.token
    until(lambda: lease.state is not interlock.State.HELD)
    waiter.lease.release()
    client.close()


def test_forgotten_scripts_are_sent_again(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url())
    with redis.Redis(port=forgetful.port) as admin:
        for _ in range(3):
            with client.lock("x"):
                admin.script_flush()
            admin.script_flush()
    client.close()


def test_a_frozen_server_cannot_delay_the_verdict(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url(), ttl=1)
    lost = threading.Event()
    lease = client.lock("x", on_lost=lambda _: lost.set()).acquire()
    assert lease
    with forgetful.frozen():
        with at_most(1.1, "the verdict waited for the server"):  # by the lease's own clock 0.98 s
            assert lost.wait(PATIENCE)
        with at_most(0.3 + 0.25 + 0.5):
            with pytest.raises(StoreUnavailable):
                client.lock("y").acquire(timeout=0.3)
    with client.lock("x", timeout=PATIENCE) as after:
        assert after.token > lease.token
    client.close()


class SlowServer:
    """Says OK to everything, each time after `pause` seconds."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while client.recv(65536):
                time.sleep(self._pause)
                client.sendall(b"+OK\r\n")

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_server_that_answers_each_word_in_time_cannot_stretch_a_handshake(face: str) -> None:
    """Password, name, library, database: each reply had the whole time, and a renewal took four times as long."""
    server = SlowServer(pause=0.2)
    address = Address.of_url(f"redis://:secret@127.0.0.1:{server.port}/3?client_name=x")
    with at_most(0.3 + 0.1), pytest.raises(StoreUnavailable):
        if face == "sync":
            address.connect(0.3)
        else:
            asyncio.run(address.connect_async(0.3))
    server.close()


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
def test_a_waiter_gets_in_although_its_connections_were_cut(forgetful: Server, kind: str) -> None:
    holder, client = interlock.connect(forgetful.url()), interlock.connect(forgetful.url())
    lease = holder.lock("x").acquire()
    assert lease
    waiter = Waiter(client, "x")
    with redis.Redis(port=forgetful.port) as admin:
        admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    with at_most(2):
        lease.release()
        waiter.join(PATIENCE)
        assert waiter.lease
    waiter.lease.release()
    holder.close()
    client.close()


CROWD = """
import sys, threading
import interlock

client = interlock.connect(sys.argv[1])
for _ in range(50):
    threading.Thread(target=lambda: client.lock("x").acquire(), daemon=True).start()
sys.stdin.read()
"""


def test_fifty_waiters_killed_at_once_delay_the_queue_by_one_place_ttl_at_most(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url(), ttl=2)
    lease = client.lock("x").acquire()
    assert lease
    url = forgetful.url()
    dead = subprocess.Popen([sys.executable, "-c", CROWD, url], stdin=subprocess.PIPE, env=environment())
    until(lambda: len(client.inspect("x").waiters) == 50)
    waiter = Waiter(client, "x", timeout=60)
    until(lambda: len(client.inspect("x").waiters) == 51)
    dead.kill()
    dead.communicate()
    with at_most(10 + 3, "the places of the dead were stacked"):
        lease.release()
        waiter.join(PATIENCE)
        assert waiter.lease
    waiter.lease.release()
    client.close()


def test_a_killed_holders_lease_lapses_and_the_next_gets_in(forgetful: Server) -> None:
    program = (
        "import sys, interlock\n"
        "lease = interlock.connect(sys.argv[1], ttl=1).lock('x').acquire()\n"
        "print(lease.token, flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, forgetful.url()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert holder.stdout is not None
    token = int(holder.stdout.readline())
    client = interlock.connect(forgetful.url(), ttl=1)
    waiter = Waiter(client, "x")
    holder.kill()
    holder.communicate()
    waiter.join(PATIENCE)
    assert waiter.lease
    assert waiter.lease.token > token
    waiter.lease.release()
    client.close()


def test_a_thousand_waiters_on_a_thousand_resources_use_a_constant_number_of_connections(
    forgetful: Server,
) -> None:
    async def main() -> None:
        async with aio.connect(forgetful.url()) as client:

            async def wait(n: int) -> None:
                async with client.lock(f"x-{n}", timeout=60):
                    pass

            leases = [await client.lock(f"x-{n}").acquire() for n in range(1000)]
            waiters = [asyncio.create_task(wait(n)) for n in range(1000)]
            with redis.Redis(port=forgetful.port) as admin:
                while True:
                    info: Any = admin.info("keyspace")
                    # Each has a key of its holder and one of its waiters; and there is the counter.
                    if info.get("db0", {}).get("keys") == 2001:
                        break
                    await asyncio.sleep(0.01)
                clients: Any = admin.info("clients")
                assert clients["connected_clients"] <= 1 + 4
                for lease in leases:
                    assert lease
                    await lease.release()
                await asyncio.gather(*waiters)
                assert admin.dbsize() == 1

    asyncio.run(main())


def test_idle_names_leave_nothing_behind(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url())
    with redis.Redis(port=forgetful.port) as admin:
        for n in range(2000):
            with client.lock(f"name-{n}"):
                pass
        with client.semaphore("s", 3), client.rwlock("rw").read():
            pass
        assert admin.keys() == [b"\x1ftoken"]
        with client.lock("abandoned", ttl=0.2, renew=False):
            waiter = threading.Thread(target=lambda: client.lock("abandoned", ttl=0.2).acquire(timeout=0.05))
            waiter.start()
            waiter.join()
        left: Any = admin.keys()
        assert all(admin.pttl(key) != -1 for key in left if key != b"\x1ftoken")
    client.close()


def test_a_token_never_goes_back_although_the_clock_does(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url())
    ahead = time.time_ns() // 1000 + 3_600_000_000
    with redis.Redis(port=forgetful.port) as admin:
        admin.set("\x1ftoken", ahead)
    tokens = []
    for _ in range(3):
        with client.lock("x") as lease:
            tokens.append(lease.token)
    assert tokens == [
        ahead + TOKENS_PER_GRANT,
        ahead + 2 * TOKENS_PER_GRANT,
        ahead + 3 * TOKENS_PER_GRANT,
    ]  # those in between are reserved
    client.close()


@pytest.mark.parametrize("last", [str(79 * 10**14), str(2**53), str(2**63 - 1), str(2**64), "abc"])
def test_no_token_is_given_that_a_number_of_lua_could_not_tell_from_the_next(
    forgetful: Server, last: str
) -> None:
    """Somebody has written the counter, or a clock was centuries ahead: refused, before tokens repeat or waiters are lost."""
    client, other = interlock.connect(forgetful.url()), interlock.connect(forgetful.url())
    register = client.register("r")
    with redis.Redis(port=forgetful.port) as admin:
        with client.lock("held", ttl=5, timeout=5):
            admin.set("\x1ftoken", last)
            with pytest.raises(StoreUnfit, match=r"delete the key \\x1ftoken"):
                other.lock("held").acquire(timeout=PATIENCE)
            assert not client.inspect("held").waiters
        for synchronizer in (client.lock("free"), client.semaphore("s", 3), client.rwlock("rw").read()):
            with pytest.raises(StoreUnfit, match="delete the key"):
                synchronizer.acquire(blocking=False)
        if last != "abc":
            with pytest.raises(StoreUnfit, match="delete the key"):
                register.update(lambda _: 1)
        admin.delete("\x1ftoken")
        assert register.update(lambda _: 2).version < 79 * 10**14
        with client.lock("free", timeout=PATIENCE), other.lock("held", timeout=PATIENCE):
            pass
    client.close()
    other.close()


@pytest.mark.parametrize("queued", [False, True], ids=["free", "queued"])
def test_tokens_and_waiters_are_right_up_to_the_last_token(forgetful: Server, queued: bool) -> None:
    holder, other = interlock.connect(forgetful.url()), interlock.connect(forgetful.url())
    tokens: list[int] = []

    def take() -> None:
        with other.lock("x", timeout=PATIENCE) as lease:
            tokens.append(lease.token)

    with redis.Redis(port=forgetful.port) as admin:
        admin.set("\x1ftoken", 79 * 10**14 - 1000)
        for _ in range(5):
            thread = threading.Thread(target=take)
            with holder.lock("x", timeout=PATIENCE) as lease:
                tokens.append(lease.token)
                if queued:
                    thread.start()
                    until(lambda: holder.inspect("x").waiters)
            if not queued:
                thread.start()
            thread.join()
        admin.delete("\x1ftoken")
    assert all(later - earlier >= TOKENS_PER_GRANT for earlier, later in pairwise(tokens))
    holder.close()
    other.close()


@pytest.mark.parametrize("queued", [False, True], ids=["free", "queued"])
def test_a_token_never_repeats_after_a_failover_to_a_replica_with_an_older_counter(
    forgetful: Server, queued: bool
) -> None:
    """The counter alone would go on from its older value; the clock under it is above every token that was given."""
    holder, other = interlock.connect(forgetful.url()), interlock.connect(forgetful.url())
    tokens: list[int] = []

    def take() -> None:
        with other.lock("x") as lease:
            tokens.append(lease.token)

    with redis.Redis(port=forgetful.port) as admin:
        with holder.lock("x"):
            older: Any = admin.get("\x1ftoken")
        for _ in range(10):
            thread = threading.Thread(target=take)
            with holder.lock("x") as lease:
                tokens.append(lease.token)
                admin.set("\x1ftoken", older)  # a new master, which missed every grant but the first
                if queued:
                    thread.start()
                    until(lambda: holder.inspect("x").waiters)
            if not queued:
                thread.start()
            thread.join()
    assert all(later - earlier >= TOKENS_PER_GRANT for earlier, later in pairwise(tokens))
    holder.close()
    other.close()


def test_a_server_that_evicts_keys_never_moves_a_token_back(forgetful: Server) -> None:
    client = interlock.connect(forgetful.url())
    tokens: list[int] = []
    with redis.Redis(port=forgetful.port) as admin:
        admin.config_set("maxmemory-policy", "allkeys-random")
        used: Any = admin.info("memory")
        admin.config_set("maxmemory", used["used_memory"] + 2_000_000)
        for n in range(300):
            admin.set(f"filler-{n}", b"x" * 20_000)
            with suppress(LeaseLost):  # evicted while held: a documented limit of such a server
                with client.lock("x", timeout=PATIENCE, renew=False) as lease:
                    tokens.append(lease.token)
                    with client.semaphore("s", 2, timeout=PATIENCE, renew=False):
                        admin.set(f"filler-{n}b", b"x" * 20_000)
        stats: Any = admin.info("stats")
        assert stats["evicted_keys"] > 0
    assert tokens == sorted(set(tokens))
    client.close()
