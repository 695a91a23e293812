"""Receives grants: one subscription, kept by one thread, for all waiters of this store, threads and tasks
alike.

The store's channel is part of the record of every claim it makes. A script that admits a claim, or removes it
on behalf of another client, publishes `id token` there (token 0: ask again). Scripts that this store runs
itself report grants in their reply. A message that arrives before its waiter listens is kept. Messages only
wake waiters: the scripts decide, and a waiter that misses a message asks again in the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.reader import LOST, POLLS, SubscriptionReader
from interlock.backends.kit.waiters import notify
from interlock.backends.redis.address import Route
from interlock.backends.redis.pubsub.heartbeat import PING, Heartbeat
from interlock.backends.redis.pubsub.waiters import GrantWaiters, NoListenerThread
from interlock.backends.redis.transport.pool import BlockingConnection, connected
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, command, message_parts
from interlock.errors import InterlockError

IDLE = 10.0  # seconds for which the thread outlives the last waiter
AGAIN = 0.2  # seconds between attempts to reconnect


class Listener(GrantWaiters):
    """Delivers messages from one subscription to all waiters."""

    def __init__(self, address: Route) -> None:
        self._address = address
        self.after_fork()

    def after_fork(self) -> None:
        """Start afresh in a forked child: nobody waits, no thread runs, and the old channel is the
        parent's.
        """
        super().after_fork()
        self.channel = b"interlock:" + os.urandom(8).hex().encode()
        self._set_generation(0)
        self._generations = 0
        self._subscribed: set[bytes] = set()  # confirmed by the server
        self._thread: threading.Thread | None = None
        self._connection: BlockingConnection | None = None
        self._set_reader(None)
        self.reader: SubscriptionReader | None = (
            None  # `_reader` once it is subscribed; waiters may then read it themselves
        )

    def _set_reader(self, reader: SubscriptionReader | None) -> None:
        self._reader: SubscriptionReader | None = reader
        # Every release asks: without a reader it is the mutex's own method.
        self.inside: Callable[[], bool] = (
            self._mutex._is_owned if reader is None else self._inside_with_reader
        )
        """Whether the calling thread is in the middle of a change here, or of delivering a message."""

    def _inside_with_reader(self) -> bool:
        reader = self._reader
        return self._mutex._is_owned() or (reader is not None and reader.inside())

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
        """Set the number of the present subscription; 0 while there is none."""
        self.generation = number
        self.only = (self.channel, number)

    def enlist(self, signal: Signal, *topics: bytes) -> bool:
        with self._mutex:
            self._registry.add(signal, *topics)
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
            connection = self._connection
            if connection is not None:
                self._send(connection, command(b"SUBSCRIBE", channel))
            if not self._ensure_thread():
                raise NoListenerThread(
                    f"{self._address.place}: no thread could be started to listen for grants"
                )
            return False

    # ---- the thread -------------------------------------------------------------------

    def _ensure_thread(self) -> bool:
        """Start the thread if it does not run; it then waits for the mutex.

        False if the system cannot start one.
        """
        if self._thread is None and not self._closed:
            thread = native.Thread(target=self._run, name="interlock-redis", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        try:
            while self._wanted():
                self._serve()
        finally:
            with self._mutex:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _wanted(self) -> bool:
        with self._mutex:
            self._drop_abandoned()
            if self._closed or not (self._waiters or self._subscribing):
                self._thread = None  # under the mutex: the next waiter starts another
                return False
            return True

    def _serve(self) -> None:
        """Connect, and deliver messages until the connection ends or nobody waits any more."""
        try:
            connection = connected(self._address, self._address.connect_timeout)
        except InterlockError:
            # The waiters ask the store themselves, and hear from the server what is wrong.
            self._give_up_subscribing()
            time.sleep(AGAIN)
            return
        try:
            with self._mutex:
                if self._closed:
                    return
                self._connection = connection
                self._set_reader(self._lendable(connection))
                # Sending must not block: it happens under the mutex, which all waiters need.
                connection.share()
                self._send(connection, command(b"SUBSCRIBE", self.channel, *self._channels()))
            self._receive_all(connection)
        except (OSError, EOFError, ValueError):  # ValueError: another thread has closed the socket
            pass  # the connection is lost: waiters ask again
        # This user may not subscribe, or the server says what no server should: waiters must poll.
        except (ErrorReply, *MALFORMED):
            self._give_up_subscribing()
            time.sleep(AGAIN)
        finally:
            with self._mutex:
                self._connection = self.reader = None
                reader = self._reader
                self._set_reader(None)
                self._set_generation(0)
                self._subscribed.clear()
                signals = self._registry.everyone()
            (connection if reader is None else reader).close()
            notify(signals)  # messages may have been missed: all ask again

    def _lendable(self, connection: BlockingConnection) -> SubscriptionReader | None:
        """The reader that can be lent to waiters; None if only our own thread can read."""
        try:
            if POLLS and connection.polls:
                return SubscriptionReader(connection, self._on_reply, (*LOST, *MALFORMED, ErrorReply))
            return None
        except OSError:  # no file descriptors are left for its pipes: connecting anew would not help
            return None

    def _receive_all(self, connection: BlockingConnection) -> None:
        heartbeat, idle_at = Heartbeat(PING), time.monotonic() + IDLE
        while True:
            heard = self._read(connection)
            now = time.monotonic()
            if self._waiters:
                idle_at = now + IDLE
            if self._closed or now >= idle_at:
                return
            if heartbeat.ping_due(heard, now):
                with self._mutex:
                    self._drop_abandoned()
                    self._send(connection, command(b"PING") + self._unneeded())

    def _read(self, connection: BlockingConnection) -> bool:
        """Wait for messages and deliver them; whether any came."""
        if self._reader is not None:
            return self._reader.wait_for_news(PING)
        replies = connection.receive(PING)
        for reply in replies:
            self._on_reply(reply)
        return bool(replies)

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            raise reply
        if reply == b"PONG":  # the plain form, before anything is subscribed to
            return
        kind, channel, *rest = message_parts(reply)
        if kind == b"message":
            if channel == self.channel:
                self._deliver_message(rest[0])
            else:
                self._wake(channel)
        elif kind == b"subscribe":
            with self._mutex:
                self._subscribed.add(channel)
                if channel == self.channel:
                    self._generations += 1
                    self._set_generation(self._generations)
                    self.reader = self._reader
                arrived = self._end_subscribing((channel,))
            notify(arrived)
        elif kind == b"unsubscribe":
            with self._mutex:
                self._subscribed.discard(channel)

    def _give_up_subscribing(self) -> None:
        """Wake all who wait for a subscription: there is none for now, so they ask the store themselves."""
        with self._mutex:
            signals = list(self._subscribing)
            self._subscribing.clear()
        notify(signals)

    def _channels(self) -> list[bytes]:
        return list({channel for channel in self._subscribing.values() if channel != self.channel})

    def _unneeded(self) -> bytes:
        gone = [c for c in self._subscribed if c != self.channel and c not in self._waiters]
        return command(b"UNSUBSCRIBE", *gone) if gone else b""

    def _send(self, connection: BlockingConnection, request: bytes) -> None:
        try:
            connection.send(request)
        except OSError:
            self._hang_up(connection, self._reader)

    def _hang_up(self, connection: BlockingConnection | None, reader: SubscriptionReader | None) -> None:
        """End the connection. Its reader notices, our thread takes the reading back, and reconnects."""
        if connection is not None:
            connection.hang_up()
        if reader is not None:
            reader.recall()

    def resubscribe(self) -> None:
        """The master has changed: subscribe at the new one, and have all waiters ask again."""
        with self._mutex:
            connection, reader = self._connection, self._reader
        self._hang_up(connection, reader)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            waiting = self._registry.close()
            thread, connection, reader = self._thread, self._connection, self._reader
        self._hang_up(connection, reader)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
        notify(waiting)
