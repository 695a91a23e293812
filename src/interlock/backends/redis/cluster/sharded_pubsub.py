"""Receives grants on a Cluster by sharded channels (Redis 7), whose messages stay within their shard.

A script may publish only in a slot of its own keys. So the store has a channel for each slot in which it
makes claims, and for each master on which somebody waits one `ShardSubscription`: a connection with a thread
of its own. There is no map here that could be outdated. When a subscription ends, or the server drops a
channel because its slot has moved, the waiters ask again: their own request finds the node that has the slot
now, and the channel follows them there.

Not every node has sharded channels, and not every user may use them. A claim keeps its channel for good, so
the node is asked before the first claim. Once one node refuses, plain messages and their single subscription
serve all names that have no sharded channel yet. The others keep theirs, since claims may use it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from interlock._core.runtime import Mutex, Signal
from interlock.backends.kit.reader import SubscriptionReader
from interlock.backends.kit.waiters import notify
from interlock.backends.redis.cluster.shard_subscription import ShardSubscription
from interlock.backends.redis.cluster.slots import HostPort
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.pubsub.listener import IDLE_CLOSE_S, Listener
from interlock.backends.redis.pubsub.waiters import NoListenerThread, RedisWaiters, queue
from interlock.backends.redis.wire.keys import MAX_NAMES_CACHED, ClusterKeys, slot
from interlock.backends.redis.wire.resp import command


class PlainListener(Listener):
    """The subscription to plain messages: for registers, and for grants where there are no sharded
    channels.
    """

    def __init__(self, topology: Topology, owner: ShardedListener) -> None:
        super().__init__(topology)
        self._owner = owner

    def _deliver_message(self, message: bytes) -> None:
        self._owner.deliver(message)


class ShardedListener(RedisWaiters):
    """Delivers messages from one subscription for each master on which somebody waits."""

    def __init__(self, topology: Topology, keys: ClusterKeys, *, must: bool = False) -> None:
        self._topology = topology
        self._keys = keys
        self.must = must  # whether a node without sharded channels is an error
        self.plain = False  # whether a node without them was met
        self._able: set[HostPort] = set()  # nodes that are known to have them
        # Writers of registers do not know who listens, and publish to all nodes.
        self.registers = PlainListener(topology, self)
        self.after_fork()

    def after_fork(self) -> None:
        """Start afresh in a forked child: nobody waits, no thread runs, and the old channels are the
        parent's.
        """
        super().after_fork()
        self.registers.after_fork()
        self._own = os.urandom(8).hex().encode()
        self._channels: dict[str, bytes] = {}  # by resource, on nodes that have sharded channels
        self._generations: dict[bytes, int] = {}  # by channel, while it is subscribed to
        self._confirmed: dict[bytes, ShardSubscription] = {}  # by channel
        self._count = 0
        self._used: dict[bytes, float] = {}  # when a waiter last came, by channel
        self._subscriptions: dict[HostPort, ShardSubscription] = {}

    # ---- abilities of the nodes -------------------------------------------------------

    def channel_known(self, resource: str) -> bool:
        """Whether it is decided which channel claims on a resource use; once decided, it stays."""
        if resource in self._channels or self.plain:
            return True
        if self._node_of(resource) not in self._able:
            return False
        self._keep(resource)
        return True

    def _node_of(self, resource: str) -> HostPort:
        return self._topology.node_of(slot(self._keys.holder(resource)))

    def _keep(self, resource: str) -> None:
        with self._mutex:
            if self.plain:
                return  # decided meanwhile: another claim on it may use the plain channel
            if len(self._channels) >= MAX_NAMES_CACHED:
                self._channels.clear()
            self._channels[resource] = self._channel(resource)

    def support_probe(self, resource: str) -> bytes:
        """A request that succeeds only if the node has sharded channels and the user may use them; nobody
        receives it.
        """
        return command(b"SPUBLISH", b"Sinterlock:" + self._keys.tagged(resource), b"")

    def set_support(self, resource: str, able: bool) -> None:
        """Note whether the node of a resource has sharded channels."""
        if able:
            self._able.add(self._node_of(resource))
            self._keep(resource)
        else:
            with self._mutex:
                self.plain = True

    def inside(self) -> bool:
        return self._mutex._is_owned() or self.registers.inside()

    # ---- channels -----------------------------------------------------------------

    def subscription_of(self, resource: str) -> tuple[bytes, int]:
        """The channel of our claims on a resource, and the number of its present subscription; 0 if there
        is none.
        """
        channel = self._channels.get(resource)
        if channel is None:
            if self.plain:
                return self.registers.subscription_of(resource)
            channel = self._channel(resource)
        return channel, self._generations.get(channel, 0)

    def _channel(self, resource: str) -> bytes:
        # The first letter tells the scripts how to publish.
        return b"Sinterlock:%b%b" % (self._keys.tagged(resource), self._own)

    @property
    def reader(self) -> SubscriptionReader | None:
        """The reader of the plain subscription, if grants come by it; waiters may read it themselves."""
        return self.registers.reader if self.plain else None

    def listen(self, signal: Signal, *topics: bytes) -> None:
        super().listen(signal, *topics)
        if self.plain:
            # This keeps the subscription alive, and wakes all waiters when it is lost.
            self.registers.listen(signal, *topics)

    def forget(self, signal: Signal, *topics: bytes) -> None:
        super().forget(signal, *topics)
        if self.plain:
            self.registers.forget(signal, *topics)

    def subscribed(self, channel: bytes, signal: Signal) -> bool:
        """Whether the channel is subscribed to.

        If not, the signal is set once it is, and nothing is missed after that.
        """
        if channel == self.registers.channel:
            return self.registers.subscribed(channel, signal)
        with self._mutex:
            self._used[channel] = time.monotonic()
            if channel in self._generations:
                return True
            self._subscribing[signal] = channel
            if not self._closed:
                self._subscription_at(self._topology.node_of(slot(channel))).subscribe(channel)
            return False

    def _subscription_at(self, node: HostPort) -> ShardSubscription:
        found = self._subscriptions.get(node)
        if found is None:
            found = ShardSubscription(self, self._topology, node)
            try:
                found.start()
            except RuntimeError as error:
                raise NoListenerThread(
                    f"{self._topology.label}: nobody listens for grants: {error}"
                ) from None
            self._subscriptions[node] = found
        return found

    # ---- called by subscriptions ---------------------------------------------------------------

    @property
    def mutex(self) -> Mutex:
        """Held while channels of a subscription change and while it sends, so that both happen in the same
        order.
        """
        return self._mutex

    @property
    def closed(self) -> bool:
        return self._closed

    def deliver(self, message: bytes) -> None:
        self._deliver_message(message)

    def confirmed(self, subscription: ShardSubscription, channel: bytes) -> None:
        """The server confirmed a channel: those who asked before must ask again."""
        with self._mutex:
            if channel not in subscription.channels:
                return
            self._count += 1
            self._generations[channel] = self._count
            self._confirmed[channel] = subscription
            signals = self._end_subscribing((channel,))
        for signal in signals:
            signal.set()

    def dropped(self, subscription: ShardSubscription, channels: Collection[bytes]) -> list[Signal]:
        """Note that a subscription lost channels. Returns the waiters that must ask again.

        Needs the mutex.
        """
        self._forget(subscription, channels)
        signals = self._end_subscribing(channels)
        for resource, waiters in self._waiting():
            if self.subscription_of(resource)[0] in channels:
                signals += waiters
        return signals

    def _forget(self, subscription: ShardSubscription, channels: Collection[bytes]) -> None:
        for channel in channels:
            # Not if another subscription has it at the new node.
            if self._confirmed.get(channel) is subscription:
                del self._confirmed[channel], self._generations[channel]

    def _waiting(self) -> list[tuple[str, list[Signal]]]:
        mark = queue("")
        found = [(topic, waiters) for topic, waiters in self.topics.items() if topic.startswith(mark)]
        return [(topic[len(mark) :].decode(), list(waiters)) for topic, waiters in found]

    def unneeded(self, subscription: ShardSubscription, now: float) -> list[bytes]:
        """Give up and return the channels on which nobody has waited for long. Needs the mutex."""
        self._drop_abandoned()
        needed = {self.subscription_of(resource)[0] for resource, _ in self._waiting()}
        idle = [
            c
            for c in subscription.channels
            if c not in needed and now - self._used.get(c, 0.0) >= IDLE_CLOSE_S
        ]
        self._forget(subscription, idle)
        for channel in idle:
            self._used.pop(channel, None)
        return idle

    def ended(self, subscription: ShardSubscription) -> None:
        """Forget a subscription; the next waiter starts another. Needs the mutex."""
        if self._subscriptions.get(subscription.node) is subscription:
            del self._subscriptions[subscription.node]

    # ---- the end --------------------------------------------------------------------

    def resubscribe(self) -> None:
        """Slots have other masters now: end subscriptions at the old ones, and have their waiters ask
        again.
        """
        self.registers.resubscribe()
        with self._mutex:
            gone = [
                subscription
                for subscription in self._subscriptions.values()
                if any(
                    self._topology.node_of(slot(channel)) != subscription.node
                    for channel in subscription.channels
                )
            ]
        for subscription in gone:
            subscription.abandon()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            waiting = self._waiters.close()
            subscriptions = list(self._subscriptions.values())
        for subscription in subscriptions:
            subscription.hang_up()
        self.registers.close()
        until = time.monotonic() + 1.0
        for subscription in subscriptions:
            subscription.join(max(0.0, until - time.monotonic()))
        notify(waiting)
