"""On a Cluster a grant is published within its shard, wherever its slot is by now, and wakes the right waiter."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis.cluster import shard_subscription, sharded_pubsub
from interlock.backends.redis.cluster.open import open_cluster_url
from interlock.backends.redis.errors import COMMANDS
from interlock.backends.redis.wire.keys import slot
from interlock.errors import InvalidURL, StoreUnfit
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.cluster import BEFORE, SHARDS, RedisCluster
from interlock.testing.servers.sentinel import until
from interlock.testing.servers.tls import certificate
from tests.ended_loops import abandon, ended_loops
from tests.environment import environment
from tests.patience import PATIENCE
from tests.redis.clients import held_and_shown, held_and_shown_async
from tests.redis.shard_channels import (
    TOLD,
    calls,
    heard_at,
    listener,
    listening,
    subscriptions,
    told,
)
from tests.redis.waiter import Waiter

HOLDER = """
import sys, interlock
client = interlock.connect(sys.argv[1], ttl=60)
for line in sys.stdin:
    word, name = line.split()
    if word == "hold":
        lease = client.lock(name).acquire()
    else:
        lease.release()
    print(lease.token, flush=True)
"""


@pytest.fixture
def steady() -> RedisCluster:
    """A Cluster that no test breaks, nor moves slots of."""
    return clusters.steady()


@pytest.fixture
def url(steady: RedisCluster) -> str:
    return steady.url(f"{uuid4().hex}:")


class Stranger:
    """Another process, which holds what it is told to."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def _ask(self, word: str, name: str) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{word} {name}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def hold(self, name: str) -> int:
        return self._ask("hold", name)

    def release(self, name: str) -> int:
        return self._ask("release", name)

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture
def stranger(url: str) -> Iterator[Stranger]:
    made = Stranger(url)
    yield made
    made.close()


async def all_told(
    many: int, url: str, meanwhile: Callable[[aio.Client], object] = lambda client: None
) -> None:
    """As many tasks wait, each for a name of its own, and all are told; `meanwhile` looks while they wait."""
    names = [f"n{number}" for number in range(many)]
    async with aio.connect(url, ttl=60) as holder, aio.connect(url, ttl=60) as client:
        leases = [await holder.lock(name).acquire() for name in names]
        tasks = [asyncio.create_task(client.lock(name, timeout=60).acquire()) for name in names]
        while not all(listener(client).subscription_of(name)[1] for name in names):
            await asyncio.sleep(0.02)
        meanwhile(client)
        with at_most(5, "nobody told them: they looked for themselves"):
            await asyncio.gather(*(lease.release() for lease in leases if lease))
            entered = await asyncio.gather(*tasks)
        assert all(entered)
        await asyncio.gather(*(lease.release() for lease in entered if lease))


class TestHandingOver:
    def test_a_thread_is_told_by_another_process(
        self, steady: RedisCluster, url: str, stranger: Stranger
    ) -> None:
        client = interlock.connect(url)
        plain, shards = calls(steady, "publish"), calls(steady, "spublish")
        for name in ("x", "y", "x"):
            before = stranger.hold(name)
            waiter = Waiter(client, name)
            until(partial(told, client, name))
            with at_most(TOLD, "nobody told it: it looked for itself"):
                stranger.release(name)
                waiter.join(PATIENCE)
            assert waiter.lease
            assert waiter.lease.token > before
            waiter.lease.release()
        assert calls(steady, "spublish") - shards >= 3
        assert calls(steady, "publish") == plain, "told to all nodes"
        client.close()

    def test_a_task_is_told_by_another_process(
        self, steady: RedisCluster, url: str, stranger: Stranger
    ) -> None:
        async def main() -> None:
            look = interlock.connect(url)
            async with aio.connect(url) as client:
                for name in ("x", "y", "x"):
                    before = await asyncio.to_thread(stranger.hold, name)
                    task = asyncio.create_task(client.lock(name, timeout=20).acquire())
                    while not (look.inspect(name).waiters and listener(client).subscription_of(name)[1]):
                        await asyncio.sleep(0.01)
                    with at_most(TOLD, "nobody told it: it looked for itself"):
                        await asyncio.to_thread(stranger.release, name)
                        lease = await task
                    assert lease
                    assert lease.token > before
                    await lease.release()
            look.close()

        plain, shards = calls(steady, "publish"), calls(steady, "spublish")
        asyncio.run(main())
        assert calls(steady, "spublish") - shards >= 3
        assert calls(steady, "publish") == plain, "told to all nodes"

    def test_the_message_brings_the_token(self, url: str, stranger: Stranger) -> None:
        client = interlock.connect(url)
        stranger.hold("x")
        waiter = Waiter(client, "x")
        until(partial(told, client, "x"))
        store: Any = client._core.store
        looked: list[Any] = []
        claim = store.claim

        def noted(*args: Any) -> Any:
            looked.append(args)
            return claim(*args)

        store.claim = noted
        stranger.release("x")
        waiter.join(PATIENCE)
        assert waiter.lease
        assert not looked, "it asked again for what it was told"
        client.close()

    def test_what_was_published_before_its_subscription_is_looked_for(self, url: str) -> None:
        ours, theirs = (open_cluster_url(urlsplit(url), Threads(), asynchronous=False) for _ in range(2))
        holder, waiter = (Claim("x", uuid4().hex, 60.0) for _ in range(2))
        drive(theirs.claim(holder))
        busy = drive(ours.claim(waiter))
        assert isinstance(busy, Busy)
        drive(theirs.release("x", holder.id))  # nobody listens
        drive(ours.wait(Claim("x", uuid4().hex, 60.0), busy, 10.0))  # another has the channel subscribed to
        assert ours._listener.subscription_of("x")[1]
        with at_most(TOLD, "it waits for what was said before"):
            drive(ours.wait(waiter, busy, 10.0))
        assert isinstance(drive(ours.claim(waiter)), Granted)
        drive(ours.close())
        drive(theirs.close())

    @pytest.mark.parametrize("modes", [("plain", "sharded"), ("sharded", "plain")])
    def test_clients_of_either_kind_tell_each_other(
        self, steady: RedisCluster, modes: tuple[str, str]
    ) -> None:
        prefix = f"{uuid4().hex}:"
        holder, client = (interlock.connect(steady.url(prefix, notices=mode)) for mode in modes)
        lease = holder.lock("x").acquire()
        assert lease
        waiter = Waiter(client, "x")
        until(partial(told, client, "x"))
        with at_most(TOLD, "nobody told it: it looked for itself"):
            lease.release()
            waiter.join(PATIENCE)
            assert waiter.lease
        holder.close()
        client.close()

    def test_semaphores_evictions_and_notes_of_an_election_work_as_ever(self, url: str) -> None:
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))
        holder, client = (interlock.connect(url) for _ in range(2))
        leases: list[Any] = [holder.semaphore("s", 2).acquire() for _ in range(2)]
        entered = threading.Thread(target=lambda: client.semaphore("s", 2, timeout=15).acquire())
        entered.start()
        until(partial(told, client, "s"))
        with at_most(TOLD):
            leases[0].release()
            entered.join(PATIENCE)
        holder.close()
        client.close()

    def test_a_register_is_watched_as_ever(self, url: str) -> None:
        writer, client = (interlock.connect(url) for _ in range(2))
        waiting = threading.Thread(target=lambda: client.event("set").wait(15))
        waiting.start()
        until(lambda: listener(client).registers._subscribed)
        with at_most(TOLD):
            writer.event("set").set()
            waiting.join(PATIENCE)
        writer.close()
        client.close()

    def test_grants_that_wait_for_replicas_are_told_too(self, steady: RedisCluster) -> None:
        url = steady.url(f"{uuid4().hex}:", replicas="majority")
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))


class TestConnections:
    def test_a_thousand_who_wait_need_one_for_each_master(self, steady: RedisCluster, url: str) -> None:
        def waiting(client: aio.Client) -> None:
            assert sum(listening(steady)) == SHARDS
            assert len(subscriptions(client)) == SHARDS

        asyncio.run(all_told(1000, url, waiting))
        until(lambda: not sum(listening(steady)))

    def test_nobody_waits_there_is_none(self, steady: RedisCluster, url: str) -> None:
        client = interlock.connect(url)
        with client.lock("x"), client.semaphore("s", 2):
            assert not subscriptions(client)
        client.close()

    def test_what_nobody_needs_any_more_is_given_up_and_can_be_had_again(
        self, steady: RedisCluster, url: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sharded_pubsub, "IDLE_CLOSE_S", 0.3)
        monkeypatch.setattr(shard_subscription, "QUIET_S", 0.1)
        client, prefix = interlock.connect(url), url.partition("prefix=")[2].partition("&")[0]
        one = steady.name_on(0, prefix)
        other = next(n for n in (f"n{i}" for i in range(1000)) if steady.shard(prefix + n) == 0)
        stranger.hold(one)
        lease = Stranger(url)
        lease.hold(other)
        first, second = Waiter(client, one), Waiter(client, other)
        until(lambda: told(client, one) and told(client, other))
        assert sum(listening(steady)) == 1
        stranger.release(one)
        first.join(PATIENCE)
        numbers = [slot((prefix + name).encode()) for name in (one, other)]
        until(lambda: not heard_at(steady, steady.masters[0], numbers[0]))
        assert heard_at(steady, steady.masters[0], numbers[1]), "somebody still waits for this"
        lease.release(other)
        second.join(PATIENCE)
        until(lambda: not subscriptions(client) and not sum(listening(steady)))
        assert first.lease
        assert second.lease
        first.lease.release()
        stranger.hold(one)
        again = Waiter(client, one)
        until(partial(told, client, one))
        with at_most(TOLD):
            stranger.release(one)
            again.join(PATIENCE)
        lease.close()
        client.close()

    @ended_loops
    def test_one_left_behind_on_a_closed_loop_keeps_none(
        self, steady: RedisCluster, url: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sharded_pubsub, "IDLE_CLOSE_S", 0.3)
        monkeypatch.setattr(shard_subscription, "QUIET_S", 0.1)
        client, loop = aio.connect(url), asyncio.new_event_loop()

        async def wait() -> asyncio.Task[Any]:
            task = asyncio.create_task(client.lock("x").acquire())
            while not listener(client).subscription_of("x")[1]:
                await asyncio.sleep(0.01)
            return task

        stranger.hold("x")
        task = loop.run_until_complete(wait())
        assert subscriptions(client)
        loop.close()
        until(lambda: not subscriptions(client) and not sum(listening(steady)))
        asyncio.run(client.close())
        abandon(task)

    def test_closing_ends_every_thread_and_connection(self, steady: RedisCluster, url: str) -> None:
        holder, client = (interlock.connect(url) for _ in range(2))
        prefix = url.partition("prefix=")[2].partition("&")[0]
        names = [steady.name_on(shard, prefix) for shard in range(SHARDS)]
        leases = [holder.lock(name).acquire() for name in names]
        waiters = [Waiter(client, name) for name in names]
        until(lambda: all(told(client, name) for name in names))
        threads = [made._thread for made in subscriptions(client).values()]
        assert len(threads) == SHARDS
        for lease in leases:
            assert lease
            lease.release()
        for waiter in waiters:
            waiter.join(PATIENCE)
        client.close()
        assert not any(thread.is_alive() for thread in threads)
        assert not sum(listening(steady))
        holder.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_hears_for_itself(self, url: str, stranger: Stranger) -> None:
        client = interlock.connect(url)
        mine, its = "{one}mine", "{one}its"  # in one slot, and so of one channel
        stranger.hold(mine)
        waiter = Waiter(client, mine)
        until(partial(told, client, mine))
        other = Stranger(url)
        other.hold(its)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                fast = threading.Timer(0.5, other.release, (its,))
                fast.start()
                with at_most(0.5 + TOLD), client.lock(its, timeout=PATIENCE):
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with at_most(TOLD, "the child has taken the parent's subscription"):
            stranger.release(mine)
            waiter.join(PATIENCE)
            assert waiter.lease
        other.close()
        client.close()


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("url", "hint"),
        [
            ("redis+cluster://localhost?notices=loud", "notices=loud: say how grants are told: plain"),
            ("redis+cluster://localhost?notices=", "notices=: say how"),
            ("redis://localhost?notices=sharded", "only a Cluster, redis\\+cluster://, has this choice"),
            ("redis+sentinel://localhost/main?notices=sharded", "only a Cluster, redis\\+cluster://"),
        ],
    )
    def test_a_wrong_url_is_refused_with_a_hint(self, url: str, hint: str) -> None:
        with pytest.raises(InvalidURL, match=hint):
            interlock.connect(url)

    def test_a_server_without_such_channels_says_so_before_anything_is_claimed(self) -> None:
        with clusters.alone(*BEFORE) as alone, redis.Redis(port=alone.port) as admin:
            url = f"redis+cluster://127.0.0.1:{alone.port}?notices="
            client = interlock.connect(url + "sharded")
            with pytest.raises(StoreUnfit, match="has no sharded channels; use Redis 7 or later, or leave"):
                client.lock("x").acquire(timeout=1)

            async def main() -> None:
                async with aio.connect(url + "sharded") as client:
                    with pytest.raises(StoreUnfit, match="has no sharded channels"):
                        await client.lock("x").acquire(timeout=1)

            asyncio.run(main())
            assert not admin.keys("*")
            with interlock.connect(url + "plain") as plain, plain.lock("x"):
                pass
            client.close()

    def test_the_permissions_that_the_page_names_are_enough(self, steady: RedisCluster) -> None:
        words = f"{COMMANDS} info cluster|slots cluster|nodes cluster|info asking spublish ssubscribe sunsubscribe"
        keys = ("~locks:*", "~{locks:*", "~{????}?=locks:*")
        channels = ("&interlock:*", "&locks:*", "&Sinterlock:*")
        for node in steady.nodes.values():
            allowed = [f"+{word}" for word in words.split()]
            steady.ask(node, "ACL", "SETUSER", "sharer", "on", ">pw", *keys, *channels, *allowed)
        url = steady.url("locks:").replace("://", "://sharer:pw@", 1)
        held_and_shown(interlock.connect(url))
        holder, client = (interlock.connect(url) for _ in range(2))
        lease = holder.lock("x").acquire()
        assert lease
        waiter = Waiter(client, "x")
        until(partial(told, client, "x"))
        assert subscriptions(client)
        with at_most(TOLD):
            lease.release()
            waiter.join(PATIENCE)
            assert waiter.lease
        holder.close()
        client.close()

    def test_who_may_not_listen_looks_for_itself(self, steady: RedisCluster) -> None:
        words = f"{COMMANDS} info cluster|slots cluster|nodes cluster|info asking spublish sunsubscribe"
        for node in steady.nodes.values():
            allowed = [f"+{word}" for word in words.split()]
            steady.ask(node, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "&*", *allowed)
        url = steady.url(f"{uuid4().hex}:").replace("://", "://deaf:pw@", 1)
        holder, client = (interlock.connect(url) for _ in range(2))
        lease = holder.lock("x").acquire()
        assert lease
        waiter = Waiter(client, "x")
        with at_most(TOLD):
            lease.release()
            waiter.join(PATIENCE)
            assert waiter.lease
        holder.close()
        client.close()


def test_many_who_wait_at_once_are_told_through_tls(tmp_path: Path) -> None:
    """Their channels are asked for on connections on which others listen."""
    shown = certificate(tmp_path, "shown")
    with clusters.secure(shown) as alone:
        asyncio.run(all_told(200, f"rediss+cluster://127.0.0.1:{alone.secure}?ssl_ca_certs={shown}"))
