"""Who reads the connection of a subscription: the listener's thread, or a caller that waits."""

from __future__ import annotations

import time
from typing import Any

import redis

import interlock
from interlock import aio
from interlock.testing.servers.redis import Server
from tests.attacks.stage import eventually
from tests.subscriptions import listening


def reading(client: interlock.Client | aio.Client) -> Any:
    return listening(client).reader


def subscribed(client: interlock.Client, other: interlock.Client) -> None:
    """One that waited in vain: from now on the subscription stands, and nobody waits."""
    with other.lock("warm-up"):
        while reading(client) is None:
            assert client.lock("warm-up").acquire(timeout=0.3) is None


def left_to_the_borrower(client: interlock.Client, server: Server) -> None:
    """The listener's thread reads no longer: it notices that another does when something comes."""
    store: Any = client._core.store
    with redis.Redis(port=server.port) as admin:
        admin.publish(store._listener.channel, "nobody 0")
    eventually(lambda: store._listener.has_message(b"nobody"))
    time.sleep(0.1)
