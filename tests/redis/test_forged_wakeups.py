"""Somebody who may read our keys and publish on our channels makes no holder; with the rights that the page names, nobody else may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from interlock.backends.redis.wire.keys import companion
from interlock.testing.servers.redis import Server, running
from tests.attacks.servers.forged import NAME, Forge, Forged


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server, redis.Redis(port=server.port) as admin:
        rules = ("resetkeys", "%R~*", "allchannels", "-@all", "+zrange", "+publish")
        admin.execute_command("ACL", "SETUSER", "stranger", "on", ">pw", *rules)
        yield server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    yield server.url()
    with redis.Redis(port=server.port) as admin:
        admin.flushall()


@pytest.fixture
def forge(server: Server) -> Iterator[Forge]:
    with redis.Redis(port=server.port, username="stranger", password="pw") as stranger:

        def send(junk: bytes) -> None:
            members: Any = stranger.zrange(companion(NAME.encode(), b"w"), 0, -1)
            (record,) = [member for member in members if b"\n" in member]
            id, token, _, _, _, channel, *_ = record.split(b"\n")
            stranger.publish(channel, id + b" " + token + junk)

        yield send


class TestForged(Forged):
    believed = True
