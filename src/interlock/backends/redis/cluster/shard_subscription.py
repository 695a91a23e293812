"""The subscription to messages of one shard: a connection to its master, while somebody waits there."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, Protocol

from interlock._core.runtime import Mutex, Signal
from interlock._support import native
from interlock.backends.kit.listener import QUIET_S, RECONNECT_PAUSE_S
from interlock.backends.redis.cluster.slots import HostPort, redirected_to
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.pubsub.heartbeat import Heartbeat
from interlock.backends.redis.transport.pool import BlockingConnection, connected
from interlock.backends.redis.wire.keys import slot
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, command, message_parts
from interlock.errors import InterlockError


class SubscriptionOwner(Protocol):
    """What a subscription reports to; implemented in `sharded_pubsub`."""

    @property
    def mutex(self) -> Mutex: ...
    @property
    def closed(self) -> bool: ...
    def deliver(self, message: bytes) -> None: ...
    def confirmed(self, subscription: ShardSubscription, channel: bytes) -> None: ...
    def dropped(self, subscription: ShardSubscription, channels: Collection[bytes]) -> list[Signal]: ...
    def unneeded(self, subscription: ShardSubscription, now: float) -> list[bytes]: ...
    def ended(self, subscription: ShardSubscription) -> None: ...


class ShardSubscription:
    """The connection to one master, for as long as it lasts and somebody needs it.

    Each has a thread of its own: connecting to a dead node must not delay the messages of other nodes.
    """

    def __init__(self, owner: SubscriptionOwner, topology: Topology, node: HostPort) -> None:
        self.node = node
        self.channels: set[bytes] = set()  # requested here, confirmed or not
        self._leaving: set[bytes] = set()  # given up, but not yet confirmed by the server
        self._owner = owner
        self._topology = topology
        self._connection: BlockingConnection | None = None
        self._thread = native.Thread(target=self._run, name="interlock-redis", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def subscribe(self, channel: bytes) -> None:
        """Subscribe to a channel, now or once there is a connection. Needs the mutex."""
        if channel not in self.channels:
            self.channels.add(channel)
            if self._connection is not None and channel not in self._leaving:
                self._send(command(b"SSUBSCRIBE", channel))

    def abandon(self) -> None:
        """Wake the waiters, whose slots are elsewhere now, and end the connection; also while it is still
        being made.
        """
        self._drop(self.channels)
        self.hang_up()

    def hang_up(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.hang_up()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # ---- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        connection = None
        try:
            connection = connected(self._topology.route_to(self.node), self._topology.connect_timeout)
            if self._start(connection):
                self._receive_all(connection)
        except (OSError, EOFError, ValueError):  # ValueError: another thread has closed the socket
            pass  # the connection is lost: waiters ask again
        except (InterlockError, ErrorReply, *MALFORMED):
            # The waiters ask the store themselves, and hear from the server what is wrong.
            self._drop(self.channels)
            time.sleep(RECONNECT_PAUSE_S)
        finally:
            self._drop(self.channels, last=True)
            if connection is not None:
                connection.close()

    def _drop(self, channels: Collection[bytes], last: bool = False) -> None:
        """Have all waiters on these channels ask again; `last` ends this subscription."""
        with self._owner.mutex:
            signals = self._owner.dropped(self, channels)
            if last:
                self._connection = None
                self._owner.ended(self)
        for signal in signals:
            signal.set()

    def _start(self, connection: BlockingConnection) -> bool:
        with self._owner.mutex:
            if self._owner.closed:
                return False
            self._connection = connection
            connection.share()
            for channel in self.channels:  # one by one, because they are in different slots
                self._send(command(b"SSUBSCRIBE", channel))
            return True

    def _receive_all(self, connection: BlockingConnection) -> None:
        heartbeat, sweeps_at = Heartbeat(QUIET_S), time.monotonic() + QUIET_S
        while not self._owner.closed:
            replies = connection.receive(QUIET_S)
            for reply in replies:
                self._on_reply(reply)
            if (now := time.monotonic()) >= sweeps_at:
                sweeps_at = now + QUIET_S
                if not self._sweep(now):
                    return
            if heartbeat.ping_due(bool(replies), now):
                with self._owner.mutex:
                    self._send(command(b"PING"))

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            self._on_error(reply)
        elif reply != b"PONG":  # the plain form, before anything is subscribed to
            kind, channel, *rest = message_parts(reply)
            if kind == b"smessage":
                self._owner.deliver(rest[0])
            elif kind == b"ssubscribe":
                self._owner.confirmed(self, channel)
            elif kind == b"sunsubscribe":
                self._unsubscribed(channel)

    def _unsubscribed(self, channel: bytes) -> None:
        """The server ended a subscription to a channel, at our request or because its slot has moved."""
        with self._owner.mutex:
            ours = channel in self._leaving
            self._leaving.discard(channel)
            if ours and channel in self.channels:  # a waiter came meanwhile
                self._send(command(b"SSUBSCRIBE", channel))
        if not ours:
            self._moved({channel})

    def _on_error(self, failure: ErrorReply) -> None:
        """A moved slot concerns only its own channels; any other error reply ends the connection."""
        if failure.code != "MOVED":
            raise failure
        better = redirected_to(failure.text, self.node, self._topology.remap)
        number = int(failure.text.split(" ")[1])
        self._topology.suspect(self.node, better)
        self._moved({channel for channel in list(self.channels) if slot(channel) == number})

    def _moved(self, channels: set[bytes]) -> None:
        with self._owner.mutex:
            self.channels -= channels
            self._leaving -= channels
            signals = self._owner.dropped(self, channels)
        for signal in signals:
            signal.set()

    def _sweep(self, now: float) -> bool:
        """Give up channels that nobody needs; False if none is left."""
        with self._owner.mutex:
            idle = self._owner.unneeded(self, now)
            self.channels.difference_update(idle)
            if not self.channels:
                self._owner.ended(self)
                return False
            self._leaving.update(idle)
            for channel in idle:
                self._send(command(b"SUNSUBSCRIBE", channel))
            return True

    def _send(self, request: bytes) -> None:
        """Send a request. Needs the mutex."""
        assert self._connection is not None
        try:
            self._connection.send(request)
        except OSError:
            self._connection.hang_up()  # our thread notices
