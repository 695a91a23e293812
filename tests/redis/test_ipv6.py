"""Servers can be reached by IPv6 alone: one server, behind Sentinel, in a Cluster, in a quorum."""

from __future__ import annotations

import asyncio
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.cluster
import redis.sentinel

import interlock
from interlock import aio
from interlock.backends.redis.wire.keys import slot
from interlock.errors import InvalidURL, StoreUnavailable
from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import Server, running
from interlock.testing.servers.sentinel import SERVICE, alone, until
from tests.patience import PATIENCE
from tests.redis.clients import held_and_shown, held_and_shown_async

HOST = "::1"
SLOTS = 16384


def _here() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((HOST, 0))
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _here(), reason="this machine has no IPv6: ::1 cannot be bound")


class Beyond(Server):
    """A server whose data are reached by ::1 only."""

    def __init__(self, *options: str) -> None:
        super().__init__(*options, "--bind", HOST)

    def _answers(self) -> bool:
        try:
            with redis.Redis(host=HOST, port=self.port, socket_timeout=1) as probe:
                return bool(probe.ping())
        except redis.RedisError:
            return False

    @property
    def host(self) -> str:
        return f"[{HOST}]:{self.port}"

    def ask(self, *words: Any) -> Any:
        with redis.Redis(host=HOST, port=self.port, socket_timeout=2, decode_responses=True) as admin:
            return admin.execute_command(*words)


@contextmanager
def started(*servers: Beyond) -> Iterator[None]:
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            server.close()


def serves(place: Any) -> None:
    """Locks are had there on both faces, waiting included."""
    held_and_shown(interlock.connect(place))
    asyncio.run(held_and_shown_async(aio.connect(place)))


def test_one_server_is_named_by_url_or_client_and_shown_in_brackets() -> None:
    with started(server := Beyond()):
        serves(f"redis://{server.host}/0")
        with redis.Redis(host=HOST, port=server.port) as theirs:
            serves(theirs)
        with interlock.connect(f"redis://{server.host}/0") as client:
            assert f"Redis at {server.host}" in repr(client._core.store)
            server.kill()
            with pytest.raises(StoreUnavailable, match=rf"Redis at \[::1\]:{server.port}: "):
                client.lock("x").acquire(timeout=0.2)


@pytest.mark.parametrize("between", [False, True], ids=["alone", "beside others"])
def test_a_quorum_is_named_by_addresses_in_brackets(between: bool) -> None:
    with started(*(servers := [Beyond() for _ in range(3)])), running() as usual:
        hosts = [server.host for server in servers]
        if between:
            hosts = [hosts[0], f"127.0.0.1:{usual.port}", hosts[1]]
        url, name = f"redlock://{','.join(hosts)}/0", uuid4().hex
        with interlock.connect(url) as client, client.lock(name) as lease:
            assert all(host in repr(client._core.store) for host in hosts)

            async def wait() -> int:
                async with aio.connect(url) as other:
                    assert await other.lock(name).acquire(blocking=False) is None
                    async with other.lock(f"{name}-2") as second:
                        return second.token

            assert lease.token > 0
            assert asyncio.run(wait()) > 0


def test_brackets_in_a_later_host_are_no_mistake_though_the_standard_library_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lenient = urllib.parse.urlsplit

    def strict(url: str, *args: Any) -> Any:  # as it became in 2025: one host, which begins with its bracket
        netloc = lenient(url, *args).netloc.rpartition("@")[2]
        before, bracket, rest = netloc.partition("[")
        if bracket and (before or rest.partition("]")[2][:1] not in ("", ":")):
            raise ValueError("Invalid IPv6 URL")
        return lenient(url, *args)

    monkeypatch.setattr(urllib.parse, "urlsplit", strict)
    for hosts in ("a:1,[::1]:2,[::2]:3", "[::1],[::2],[::3]", "user:secret@a,[::1],b"):
        with interlock.connect(f"redlock://{hosts}/0") as client:
            assert "[::1]:" in repr(client._core.store)


def test_an_address_without_brackets_or_with_half_of_them_is_refused_with_a_hint() -> None:
    for url in ("redis://::1:6379/0", "redlock://[::1]:1,[::1:2,[::1]:3", "redis+cluster://::1:6379"):
        with pytest.raises(InvalidURL, match="stands in brackets"):
            interlock.connect(url)
    for places in ("redis://[::1:6379/0", ["redis://user:secret@[::1", "redis://b", "redis://c"]):
        with pytest.raises(InvalidURL, match="stands in brackets") as refusal:
            interlock.connect(places)
        assert "secret" not in str(refusal.value)


def test_sentinels_announce_a_master_by_ipv6() -> None:
    with started(master := Beyond()), alone(master, HOST) as sentinel:
        serves(f"redis+sentinel://[{HOST}]:{sentinel.port}/{SERVICE}/0")
        manager = redis.sentinel.Sentinel([(HOST, sentinel.port)])
        with manager.master_for(SERVICE) as theirs:
            serves(theirs)
        for theirs in manager.sentinels:
            theirs.close()


@contextmanager
def halved() -> Iterator[list[Beyond]]:
    """A Cluster of two masters, who know each other by IPv6."""
    buses = [free_port(), free_port()]
    nodes = [Beyond("--cluster-enabled", "yes", "--cluster-port", str(bus)) for bus in buses]
    with started(*nodes):
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", SLOTS // 2 * number, SLOTS // 2 * (number + 1) - 1)
        nodes[0].ask("CLUSTER", "MEET", HOST, nodes[1].port, buses[1])
        until(lambda: all(node.ask("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes))
        yield nodes


def test_the_nodes_of_a_cluster_announce_each_other_by_ipv6() -> None:
    with halved() as nodes:
        prefix = f"{uuid4().hex}:"
        url = f"redis+cluster://{nodes[0].host}?prefix={prefix}"  # the other is known by what this one tells
        serves(url)
        with redis.cluster.RedisCluster(HOST, nodes[0].port) as theirs:
            serves(theirs)
        names = [
            next(n for n in map(str, range(99)) if slot(f"{prefix}{n}".encode()) // 8192 == h) for h in (0, 1)
        ]
        with interlock.connect(url) as client, client.lock(names[0]), client.lock(names[1]):
            assert [
                node.ask("EXISTS", f"{prefix}{name}") for node, name in zip(nodes, names, strict=True)
            ] == [1, 1]
        with interlock.connect(url) as client:
            with client.lock(names[0]):
                pass
            number, ids = slot(f"{prefix}{names[0]}".encode()), [node.ask("CLUSTER MYID") for node in nodes]
            with redis.Redis(host=HOST, port=nodes[0].port, decode_responses=True) as admin:
                keys: Any = admin.execute_command("CLUSTER", "GETKEYSINSLOT", number, 100)
                nodes[1].ask("CLUSTER", "SETSLOT", number, "IMPORTING", ids[0])
                nodes[0].ask("CLUSTER", "SETSLOT", number, "MIGRATING", ids[1])
                for key in keys:
                    admin.execute_command("MIGRATE", HOST, nodes[1].port, key, 0, 5000)
                for node in reversed(nodes):
                    node.ask("CLUSTER", "SETSLOT", number, "NODE", ids[1])
            with client.lock(names[0], timeout=PATIENCE):  # redirected: MOVED slot ::1:port
                assert nodes[1].ask("EXISTS", f"{prefix}{names[0]}") == 1
