"""How a quorum is named: by one URL, by several, or by clients; and what is refused, in one sentence."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.errors import InvalidURL, Unsupported
from interlock.testing.servers.redlock import quorum, say, steady

redis: Any = import_module("redis")  # by name: beside tests/redis a type checker takes that for it
sleepless: Any = import_module("redis.asyncio")

CONNECT = pytest.mark.parametrize("connect", [interlock.connect, aio.connect], ids=["sync", "async"])

REFUSED = {
    "redlock://a,b": "at least 3 independent servers, not 2",
    "redlock://a": "at least 3 independent servers, not 1",
    "redlock://": "names its nodes",
    "redlock://a,,b": "names its nodes",
    "redlock://a,b,a": "Redis at a:6379 is named twice",
    "redlock://a,b,a:6379": "Redis at a:6379 is named twice",
    "redlock://a,b,c:many": "the port must be a number",
    "redlock://a,b,c/name": "a database of Redis is a number",
    "redlock://a,b,c#x": "takes no #fragment",
    "redlock://a,b,c?node_timeout=soon": "how many seconds one node may take",
    "redlock://a,b,c?node_timeout=0": "how many seconds one node may take",
    "redlock://a,b,c?colour=red": "unknown option 'colour'",
}


@CONNECT
@pytest.mark.parametrize("url", REFUSED)
def test_a_wrong_quorum_is_refused_in_one_sentence(connect: Any, url: str) -> None:
    with pytest.raises(InvalidURL) as refusal:
        connect(url)
    assert REFUSED[url] in str(refusal.value)


@CONNECT
def test_several_urls_are_refused_as_one_is(connect: Any) -> None:
    for nodes, words in (
        (["redis://a", "redis://b"], "at least 3"),
        (["redis://a", "redis://b", "redis://a:6379"], "named twice"),
        (["redis://a?prefix=x", "redis://b", "redis://c"], "have one prefix"),
    ):
        with pytest.raises(InvalidURL, match=words):
            connect(nodes)
    with pytest.raises(TypeError, match="connect takes a URL such as"):
        connect(["redis://a", "memory://", "redis://b"])
    with pytest.raises(TypeError, match="connect takes a URL such as"):
        connect([object()] * 3)


def test_a_list_of_urls_and_one_url_name_the_same_quorum() -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"
    one = interlock.connect(servers.url(prefix))
    several = interlock.connect([server.url(prefix) for server in servers.all])
    with one.lock("x"):
        assert several.lock("x").acquire(blocking=False) is None
    with several.lock("x"):
        assert one.lock("x").acquire(blocking=False) is None
    one.close()
    several.close()


def test_clients_of_either_colour_name_a_quorum() -> None:
    ports, name = [server.port for server in steady().all], uuid4().hex
    blocking = [redis.Redis(host="127.0.0.1", port=port) for port in ports]
    client = interlock.connect(blocking)
    with client.lock(name) as lease:
        assert lease.token > 0

        async def main() -> None:
            others = [sleepless.Redis(host="127.0.0.1", port=port) for port in ports]
            async with aio.connect(others) as client:
                assert await client.lock(name).acquire(blocking=False) is None
            for other in others:
                await other.aclose()

        asyncio.run(main())
    client.close()
    for one in blocking:
        one.close()


def test_what_majorities_cannot_settle_is_refused_when_it_is_made() -> None:
    client = interlock.connect(steady().url(f"{uuid4().hex}:"))
    with pytest.raises(Unsupported, match="pairwise"):
        client.semaphore("x", capacity=3)
    with pytest.raises(Unsupported, match="registers"):
        client.event("x")
    client.close()


def test_a_password_stays_inside() -> None:
    client = interlock.connect("redlock://user:secret@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
    assert "secret" not in repr(client._core.store)
    with pytest.raises(interlock.StoreUnavailable) as refusal:
        client.lock("x").acquire(timeout=0.1)
    assert "secret" not in str(refusal.value)
    assert "needs 2 of 3 nodes" in str(refusal.value)
    client.close()


def test_a_node_that_forbids_what_a_quorum_needs_says_what_to_allow() -> None:
    with quorum(3) as servers:
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", "-info")
        client = interlock.connect(servers.url())
        with pytest.raises(interlock.StoreUnfit, match=r"info script\|load"):
            client.lock("x").acquire(timeout=1.0)
        client.close()
