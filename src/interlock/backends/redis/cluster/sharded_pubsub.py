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

from interlock.backends.redis.cluster.shard_subscription import Branch
from interlock.backends.redis.cluster.slots import Place
from interlock.backends.redis.cluster.topology import Cluster
from interlock.backends.redis.pubsub.listener import IDLE, Listener
from interlock.backends.redis.pubsub.reader import Reading
from interlock.backends.redis.pubsub.waiters import Ears, NobodyListens, queue
from interlock.backends.redis.wire.keys import REMEMBERED_NAMES, ClusterKeys, slot
from interlock.backends.redis.wire.resp import command
from interlock.ports import Guard, Signal


class Plain(Listener):
    """The subscription to plain messages: all of registers, and grants where there are no sharded channels."""

    def __init__(self, way: Cluster, trunk: ShardedListener) -> None:
        super().__init__(way)
        self._trunk = trunk

    def _grant(self, message: bytes) -> None:
        self._trunk.heard(message)


class ShardedListener(Ears):
    """Passes on what is published, by one subscription for each slot that somebody waits for."""

    def __init__(self, way: Cluster, keys: ClusterKeys, *, must: bool = False) -> None:
        self._way = way
        self._keys = keys
        self.must = must  # whether nodes that have no such channels are refused
        self.plain = False  # whether one was met that has none
        self._able: set[Place] = set()  # those that were asked, and have them
        self.registers = Plain(way, self)  # their writers do not know who listens, and publish to all nodes
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, no thread runs, and the channels are the parent's."""
        super().after_fork()
        self.registers.after_fork()
        self._own = os.urandom(8).hex().encode()
        self._channels: dict[str, bytes] = {}  # of names on nodes that have them
        self._generations: dict[bytes, int] = {}  # of the channels that are subscribed to
        self._confirmed: dict[bytes, Branch] = {}  # where
        self._count = 0
        self._used: dict[bytes, float] = {}  # when somebody last began to wait
        self._branches: dict[Place, Branch] = {}

    # ---- what the nodes can -------------------------------------------------------

    def decided(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource have; from then on it is that."""
        if resource in self._channels or self.plain:
            return True
        if self._home(resource) not in self._able:
            return False
        self._keep(resource)
        return True

    def _home(self, resource: str) -> Place:
        return self._way.home(slot(self._keys.holder(resource)))

    def _keep(self, resource: str) -> None:
        with self._guard:
            if self.plain:
                return  # by now: somebody else's claim on it may stand with the plain one
            if len(self._channels) >= REMEMBERED_NAMES:
                self._channels.clear()
            self._channels[resource] = self._channel(resource)

    def question(self, resource: str) -> bytes:
        """What only a node of sharded channels answers, from a user who may use them; nobody hears it."""
        return command(b"SPUBLISH", b"Sinterlock:" + self._keys.tagged(resource), b"")

    def judge(self, resource: str, able: bool) -> None:
        """The node of a resource was asked."""
        if able:
            self._able.add(self._home(resource))
            self._keep(resource)
        else:
            with self._guard:
                self.plain = True

    def inside(self) -> bool:
        return self._guard._is_owned() or self.registers.inside()

    # ---- channels -----------------------------------------------------------------

    def line(self, resource: str) -> tuple[bytes, int]:
        """The channel of our claims on a resource, and which subscription to it this is; 0 while there is none."""
        channel = self._channels.get(resource)
        if channel is None:
            if self.plain:
                return self.registers.line(resource)
            channel = self._channel(resource)
        return channel, self._generations.get(channel, 0)

    def _channel(self, resource: str) -> bytes:
        # The first letter tells the scripts how to publish.
        return b"Sinterlock:%b%b" % (self._keys.tagged(resource), self._own)

    @property
    def reading(self) -> Reading | None:
        """The plain subscription, if grants come by it: those who wait may read it themselves."""
        return self.registers.reading if self.plain else None

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
            self._arriving[signal] = channel
            if not self._closed:
                self._branch(self._way.home(slot(channel))).want(channel)
            return False

    def _branch(self, place: Place) -> Branch:
        found = self._branches.get(place)
        if found is None:
            found = Branch(self, self._way, place)
            try:
                found.start()
            except RuntimeError as error:
                raise NobodyListens(f"{self._way.place}: nobody listens for grants: {error}") from None
            self._branches[place] = found
        return found

    # ---- for branches ---------------------------------------------------------------

    @property
    def guard(self) -> Guard:
        """Held by whoever changes what a branch has, or sends there: what is sent must come in that order."""
        return self._guard

    @property
    def closed(self) -> bool:
        return self._closed

    def heard(self, message: bytes) -> None:
        self._grant(message)

    def confirmed(self, branch: Branch, channel: bytes) -> None:
        """It is subscribed to from now on: whoever asked before must look again."""
        with self._guard:
            if channel not in branch.channels:
                return
            self._count += 1
            self._generations[channel] = self._count
            self._confirmed[channel] = branch
            signals = self._arrived((channel,))
        for signal in signals:
            signal.set()

    def dropped(self, branch: Branch, channels: Collection[bytes]) -> list[Signal]:
        """They are not heard there any more, under the guard. Returns who must look again, for what was missed."""
        self._forget(branch, channels)
        signals = self._arrived(channels)
        for resource, ears in self._waiting():
            if self.line(resource)[0] in channels:
                signals += ears
        return signals

    def _forget(self, branch: Branch, channels: Collection[bytes]) -> None:
        for channel in channels:
            if self._confirmed.get(channel) is branch:  # and not the one at its new place
                del self._confirmed[channel], self._generations[channel]

    def _waiting(self) -> list[tuple[str, list[Signal]]]:
        mark = queue("")
        found = [(topic, ears) for topic, ears in self._ears.items() if topic.startswith(mark)]
        return [(topic[len(mark) :].decode(), list(ears)) for topic, ears in found]

    def unneeded(self, branch: Branch, now: float) -> list[bytes]:
        """Its channels that nobody has waited on for long, under the guard; they are not heard any more."""
        self._leave_behind()
        needed = {self.line(resource)[0] for resource, _ in self._waiting()}
        idle = [c for c in branch.channels if c not in needed and now - self._used.get(c, 0.0) >= IDLE]
        self._forget(branch, idle)
        for channel in idle:
            self._used.pop(channel, None)
        return idle

    def ended(self, branch: Branch) -> None:
        """Under the guard: whoever comes next starts another."""
        if self._branches.get(branch.place) is branch:
            del self._branches[branch.place]

    # ---- the end --------------------------------------------------------------------

    def resubscribe(self) -> None:
        """Slots have other masters now: hear what is published there, and let all who wait on them look again."""
        self.registers.resubscribe()
        with self._guard:
            gone = [
                branch
                for branch in self._branches.values()
                if any(self._way.home(slot(channel)) != branch.place for channel in branch.channels)
            ]
        for branch in gone:
            branch.leave()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            branches = list(self._branches.values())
        for branch in branches:
            branch.hang_up()
        self.registers.close()
        until = time.monotonic() + 1.0
        for branch in branches:
            branch.join(max(0.0, until - time.monotonic()))
