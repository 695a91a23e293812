"""Receives grants: one subscription for all waiters of a store.

The store's channel is part of the record of every claim it makes. A script that admits a claim, or removes it
on behalf of another client, publishes `id token` there (token 0: ask again). Scripts that this store runs
itself report grants in their reply. Messages only wake waiters: the scripts decide.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from interlock._core.runtime import Signal
from interlock.backends.kit import listener
from interlock.backends.kit.listener import SubscriptionListener
from interlock.backends.kit.reader import LOST
from interlock.backends.kit.waiters import notify
from interlock.backends.redis.address import Route
from interlock.backends.redis.pubsub.heartbeat import Heartbeat
from interlock.backends.redis.pubsub.waiters import NoListenerThread, RedisWaiters
from interlock.backends.redis.transport.pool import BlockingConnection, connected
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, command, message_parts

IDLE_CLOSE_S = 10.0  # how long the thread outlives the last waiter


class Listener(RedisWaiters, SubscriptionListener[bytes, Signal, BlockingConnection]):
    """Delivers messages from one subscription to all waiters."""

    thread_name = "interlock-redis"
    lost = LOST  # a ValueError, too: another thread has closed the socket
    # This user may not subscribe, or the server says what no server should.
    refused: ClassVar[tuple[type[Exception], ...]] = (ErrorReply, *MALFORMED)

    def __init__(self, address: Route) -> None:
        self._address = address
        self.after_fork()

    def after_fork(self) -> None:
        self.channel = b"interlock:" + os.urandom(8).hex().encode()
        super().after_fork()
        self._subscribed: set[bytes] = set()  # confirmed by the server

    @property
    def idle_close_s(self) -> float:
        return IDLE_CLOSE_S

    @property
    def registers(self) -> Listener:
        """The listener for registers: here the same one."""
        return self

    def subscription_of(self, resource: str) -> tuple[bytes, int]:
        """The channel of our claims on a resource, and the number of its present subscription; 0 if there
        is none.
        """
        assert self.only is not None
        return self.only

    def _set_generation(self, number: int) -> None:
        super()._set_generation(number)
        self.only = (self.channel, number)

    def enlist(self, signal: Signal, *topics: bytes) -> bool:
        with self._mutex:
            self._waiters.add(signal, *topics)
            if self._thread is None:
                self._ensure_thread()
            return self.channel in self._subscribed

    def subscribed(self, channel: bytes, signal: Signal) -> bool:
        """Whether the channel is subscribed to.

        If not, the signal is set once it is, and nothing is missed after that.
        """
        with self._mutex:
            if channel in self._subscribed:
                return True
            self._subscribing[signal] = channel
            connection = self._subscription
            if connection is not None:
                self._send(connection, command(b"SUBSCRIBE", channel))
            if self._ensure_thread() is not None:
                raise NoListenerThread(
                    f"{self._address.label}: no thread could be started to listen for grants"
                )
            return False

    # ---- the subscription ---------------------------------------------------------------

    def _connect(self) -> BlockingConnection:
        return connected(self._address, self._address.connect_timeout)

    def _readable(self, subscription: BlockingConnection) -> BlockingConnection | None:
        return subscription if subscription.polls else None

    def _begin(self, subscription: BlockingConnection) -> list[Signal]:
        self._heartbeat = Heartbeat(listener.QUIET_S)
        # Sending must not block: it happens under the mutex, which all waiters need.
        subscription.share()
        wanted = {channel for channel in self._subscribing.values() if channel != self.channel}
        self._send(subscription, command(b"SUBSCRIBE", self.channel, *wanted))
        return []

    def _look_after(self, subscription: BlockingConnection, heard: bool, now: float) -> None:
        if self._heartbeat.ping_due(heard, now):
            with self._mutex:
                self._drop_abandoned()
                self._send(subscription, command(b"PING") + self._unneeded())

    def _on_message(self, message: Any) -> None:
        if isinstance(message, ErrorReply):
            raise message
        if message == b"PONG":  # the plain form, before anything is subscribed to
            return
        kind, channel, *rest = message_parts(message)
        if kind == b"message":
            if channel == self.channel:
                self._deliver_message(rest[0])
            else:
                self.wake(channel)
        elif kind == b"subscribe":
            with self._mutex:
                self._subscribed.add(channel)
                if channel == self.channel:
                    self._confirm()
                arrived = self._end_subscribing((channel,))
            notify(arrived)
        elif kind == b"unsubscribe":
            with self._mutex:
                self._subscribed.discard(channel)

    def _end(self) -> None:
        self._subscribed.clear()

    def _unneeded(self) -> bytes:
        gone = [c for c in self._subscribed if c != self.channel and c not in self.topics]
        return command(b"UNSUBSCRIBE", *gone) if gone else b""

    def _send(self, connection: BlockingConnection, request: bytes) -> None:
        try:
            connection.send(request)
        except OSError:
            self._hang_up(connection, self._reader)

    def resubscribe(self) -> None:
        """The master has changed: subscribe at the new one, and have all waiters ask again."""
        with self._mutex:
            connection, reader = self._subscription, self._reader
        self._hang_up(connection, reader)
