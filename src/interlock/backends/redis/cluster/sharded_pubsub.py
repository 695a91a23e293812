"""Hearing of grants on a Cluster by sharded channels (Redis 7): what is published stays within its shard.

A script may publish only to a slot of its own keys. So the store has a channel for each slot that it makes claims on, and
for each master with such a slot that somebody waits for a branch: one connection, on a thread of its own. There is no
map here to go stale. When a branch ends, or the server takes a channel from it because the slot has moved, those who wait on it
look again: their own request finds the node that has the slot now, and the channel follows them there.

Not every node has such channels, and not every user may use them. A claim stands with its channel for good, so the node is
asked before the first claim there. Once one cannot, plain messages and the one subscription for them do for all names that have
no sharded channel yet; the others keep theirs, since claims may stand with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from interlock.backends.redis.cluster.shard_subscription import ShardSubscription
from interlock.backends.redis.cluster.slots import HostPort
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.pubsub.listener import IDLE, Listener
from interlock.backends.redis.pubsub.reader import SubscriptionReader
from interlock.backends.redis.pubsub.waiters import NoListenerThread, Waiters, queue
from interlock.backends.redis.wire.keys import REMEMBERED_NAMES, ClusterKeys, slot
from interlock.backends.redis.wire.resp import command
from interlock.ports import Guard, Signal


class PlainListener(Listener):
    """The subscription to plain messages: all of registers, and grants where there are no sharded channels."""

    def __init__(self, topology: Topology, owner: ShardedListener) -> None:
        super().__init__(topology)
        self._owner = owner

    def _deliver_message(self, message: bytes) -> None:
        self._owner.deliver(message)


class ShardedListener(Waiters):
    """Passes on what is published, by one subscription for each slot that somebody waits for."""

    def __init__(self, topology: Topology, keys: ClusterKeys, *, must: bool = False) -> None:
        self._topology = topology
        self._keys = keys
        self.must = must  # whether nodes that have no such channels are refused
        self.plain = False  # whether one was met that has none
        self._able: set[HostPort] = set()  # those that were asked, and have them
        self.registers = PlainListener(
            topology, self
        )  # their writers do not know who listens, and publish to all nodes
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, no thread runs, and the channels are the parent's."""
        super().after_fork()
        self.registers.after_fork()
        self._own = os.urandom(8).hex().encode()
        self._channels: dict[str, bytes] = {}  # of names on nodes that have them
        self._generations: dict[bytes, int] = {}  # of the channels that are subscribed to
        self._confirmed: dict[bytes, ShardSubscription] = {}  # where
        self._count = 0
        self._used: dict[bytes, float] = {}  # when somebody last began to wait
        self._subscriptions: dict[HostPort, ShardSubscription] = {}

    # ---- what the nodes can -------------------------------------------------------

    def channel_known(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource have; from then on it is that."""
        if resource in self._channels or self.plain:
            return True
        if self._node_of(resource) not in self._able:
            return False
        self._keep(resource)
        return True

    def _node_of(self, resource: str) -> HostPort:
        return self._topology.node_of(slot(self._keys.holder(resource)))

    def _keep(self, resource: str) -> None:
        with self._guard:
            if self.plain:
                return  # by now: somebody else's claim on it may stand with the plain one
            if len(self._channels) >= REMEMBERED_NAMES:
                self._channels.clear()
            self._channels[resource] = self._channel(resource)

    def support_probe(self, resource: str) -> bytes:
        """What only a node of sharded channels answers, from a user who may use them; nobody hears it."""
        return command(b"SPUBLISH", b"Sinterlock:" + self._keys.tagged(resource), b"")

    def set_support(self, resource: str, able: bool) -> None:
        """The node of a resource was asked."""
        if able:
            self._able.add(self._node_of(resource))
            self._keep(resource)
        else:
            with self._guard:
                self.plain = True

    def inside(self) -> bool:
        return self._guard._is_owned() or self.registers.inside()

    # ---- channels -----------------------------------------------------------------

    def subscription_of(self, resource: str) -> tuple[bytes, int]:
        """The channel of our claims on a resource, and which subscription to it this is; 0 while there is none."""
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
        """The plain subscription, if grants come by it: those who wait may read it themselves."""
        return self.registers.reader if self.plain else None

    def listen(self, topic: bytes, signal: Signal) -> None:
        super().listen(topic, signal)
        if self.plain:
            self.registers.listen(topic, signal)  # which keeps it going, and wakes them all when it is lost

    def forget(self, topic: bytes, signal: Signal) -> None:
        super().forget(topic, signal)
        if self.plain:
            self.registers.forget(topic, signal)

    def subscribed(self, channel: bytes, signal: Signal) -> bool:
        """True if the channel is subscribed to; otherwise the signal is set once it is, and nothing was missed."""
        if channel == self.registers.channel:
            return self.registers.subscribed(channel, signal)
        with self._guard:
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
                    f"{self._topology.place}: nobody listens for grants: {error}"
                ) from None
            self._subscriptions[node] = found
        return found

    # ---- for branches ---------------------------------------------------------------

    @property
    def guard(self) -> Guard:
        """Held by whoever changes what a branch has, or sends there: what is sent must come in that order."""
        return self._guard

    @property
    def closed(self) -> bool:
        return self._closed

    def deliver(self, message: bytes) -> None:
        self._deliver_message(message)

    def confirmed(self, subscription: ShardSubscription, channel: bytes) -> None:
        """It is subscribed to from now on: whoever asked before must look again."""
        with self._guard:
            if channel not in subscription.channels:
                return
            self._count += 1
            self._generations[channel] = self._count
            self._confirmed[channel] = subscription
            signals = self._end_subscribing((channel,))
        for signal in signals:
            signal.set()

    def dropped(self, subscription: ShardSubscription, channels: Collection[bytes]) -> list[Signal]:
        """They are not heard there any more, under the guard. Returns who must look again, for what was missed."""
        self._forget(subscription, channels)
        signals = self._end_subscribing(channels)
        for resource, waiters in self._waiting():
            if self.subscription_of(resource)[0] in channels:
                signals += waiters
        return signals

    def _forget(self, subscription: ShardSubscription, channels: Collection[bytes]) -> None:
        for channel in channels:
            if self._confirmed.get(channel) is subscription:  # and not the one at its new place
                del self._confirmed[channel], self._generations[channel]

    def _waiting(self) -> list[tuple[str, list[Signal]]]:
        mark = queue("")
        found = [(topic, waiters) for topic, waiters in self._waiters.items() if topic.startswith(mark)]
        return [(topic[len(mark) :].decode(), list(waiters)) for topic, waiters in found]

    def unneeded(self, subscription: ShardSubscription, now: float) -> list[bytes]:
        """Its channels that nobody has waited on for long, under the guard; they are not heard any more."""
        self._drop_abandoned()
        needed = {self.subscription_of(resource)[0] for resource, _ in self._waiting()}
        idle = [c for c in subscription.channels if c not in needed and now - self._used.get(c, 0.0) >= IDLE]
        self._forget(subscription, idle)
        for channel in idle:
            self._used.pop(channel, None)
        return idle

    def ended(self, subscription: ShardSubscription) -> None:
        """Under the guard: whoever comes next starts another."""
        if self._subscriptions.get(subscription.node) is subscription:
            del self._subscriptions[subscription.node]

    # ---- the end --------------------------------------------------------------------

    def resubscribe(self) -> None:
        """Slots have other masters now: hear what is published there, and let all who wait on them look again."""
        self.registers.resubscribe()
        with self._guard:
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
        with self._guard:
            self._closed = True
            subscriptions = list(self._subscriptions.values())
        for subscription in subscriptions:
            subscription.hang_up()
        self.registers.close()
        until = time.monotonic() + 1.0
        for subscription in subscriptions:
            subscription.join(max(0.0, until - time.monotonic()))
