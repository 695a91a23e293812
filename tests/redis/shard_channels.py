"""Who listens to the channels of shards: on the servers, and in a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import interlock
from interlock import aio
from interlock.backends.redis.cluster import shard_subscription, sharded_pubsub
from interlock.backends.redis.wire.keys import slot
from interlock.testing.lag import at_most
from interlock.testing.servers.cluster import ClusterNode, RedisCluster
from interlock.testing.servers.sentinel import until

TOLD = 2.0  # seconds; who is not told looks after 10
FOLLOWED = 5.0  # seconds in which a channel is where its slot is


def followed(fact: Callable[[], object]) -> None:
    """Wait until a channel is where its slot is, in time."""
    with at_most(FOLLOWED, "the channel did not follow its slot"):
        until(fact)


def calls(cluster: RedisCluster, command: str) -> int:
    """How often a command was run on all nodes, in scripts too."""
    stats = [cluster.ask(node, "INFO", "commandstats") for node in cluster.nodes.values()]
    return sum(facts.get(f"cmdstat_{command}", {}).get("calls", 0) for facts in stats)


def heard_at(cluster: RedisCluster, node: ClusterNode, number: int) -> bool:
    """Whether somebody listens on this node to a channel of a slot."""
    channels: list[str] = cluster.ask(node, "PUBSUB SHARDCHANNELS", "Sinterlock:*")
    return any(slot(channel.encode()) == number for channel in channels)


def listening(cluster: RedisCluster) -> list[int]:
    """How many connections listen to shards' channels, node by node."""
    found = []
    for node in cluster.nodes.values():
        with cluster.admin(node) as admin:
            found.append(len([1 for client in admin.client_list() if client.get("ssub", "0") != "0"]))
    return found


def listener(client: interlock.Client | aio.Client) -> Any:
    store: Any = client._core.store
    return store._listener


def subscriptions(client: interlock.Client | aio.Client) -> dict[Any, shard_subscription.ShardSubscription]:
    found = listener(client)
    assert isinstance(found, sharded_pubsub.ShardedListener)
    return found._subscriptions


def told(client: interlock.Client, name: str) -> bool:
    """Whether somebody here waits, and hears what is published."""
    return bool(client.inspect(name).waiters) and listener(client).subscription_of(name)[1] > 0
