"""Hearing of grants: one subscription, on one thread, for all who wait in this store, threads and tasks alike.

The store's channel stands in the record of every claim it makes. A script that lets a claim in, or removes it for
another, publishes `id token` there (token 0: look again); scripts run by this store itself tell it in their
reply. What arrives before its waiter listens is kept for it. Publishing only wakes and tells: the scripts decide,
and whoever waits looks again by itself in the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from interlock.backends.redis.address import Route
from interlock.backends.redis.pool import Wire
from interlock.backends.redis.resp import Failure, Garbled, command
from interlock.errors import InterlockError
from interlock.ports import Signal

IDLE = 10.0  # seconds the thread outlives the last who waited
PING = 5.0  # seconds of silence after which the server is asked for a sign of life
AGAIN = 0.2  # seconds between attempts to reconnect
KEPT = 4096  # messages kept for waiters that do not listen yet
CONNECT = 5.0


class Listener:
    """Sets the signals of those who wait. Topics are claims by their id, registers by their key, queues."""

    def __init__(self, address: Route) -> None:
        self._address = address
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, no thread runs, and the channel is the parent's."""
        self.channel = b"interlock:" + os.urandom(8).hex().encode()
        self.generation = 0  # counts subscriptions; 0 while there is none
        self._generations = 0
        self._guard = threading.Lock()
        self._ears: dict[bytes, dict[Signal, None]] = {}
        self._kept: dict[bytes, int] = {}
        self._subscribed: set[bytes] = set()  # confirmed by the server
        self._arriving: dict[Signal, bytes] = {}  # who waits for a subscription, and to which channel
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None
        self._closed = False

    # ---- who waits ---------------------------------------------------------------

    def listen(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            self._ears.setdefault(topic, {})[signal] = None
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="interlock-redis", daemon=True)
                self._thread.start()

    def forget(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            ears = self._ears.get(topic)
            if ears is not None:
                ears.pop(signal, None)
                if not ears:
                    del self._ears[topic]
            self._arriving.pop(signal, None)

    def subscribed(self, channel: bytes, signal: Signal) -> bool:
        """True if the channel is subscribed to; otherwise the signal is set once it is, and nothing was missed."""
        with self._guard:
            if channel in self._subscribed:
                return True
            self._arriving[signal] = channel
            wire = self._wire
            if wire is not None:
                self._send(wire, command(b"SUBSCRIBE", channel))
            return False

    def taken(self, id: bytes) -> int | None:
        """The token this claim was told, 0 if it should look, None if it was told nothing."""
        return self._kept.pop(id, None)

    def known(self, id: bytes) -> bool:
        """Whether something came for this claim before it listened."""
        return id in self._kept

    def over(self, id: bytes) -> None:
        """This claim was removed by us: forget what came for it, and wake whoever waits for its removal."""
        if self._kept:
            self._kept.pop(id, None)
        if id in self._ears:
            self._wake(id)

    # ---- what is heard --------------------------------------------------------------

    def tell(self, told: Sequence[Any]) -> None:
        """Pass on what a script told its caller: id, token, id, token, ..."""
        for i in range(0, len(told), 2):
            self._hear(told[i], int(told[i + 1]))

    def look(self, topic: bytes) -> None:
        """Have everybody who waits for a topic look again: what they were told may be lost."""
        if topic in self._ears:
            self._wake(topic)

    def _hear(self, id: bytes, token: int) -> None:
        if len(self._kept) >= KEPT:  # of waiters that gave up: the oldest have long been answered
            for old in list(self._kept)[: KEPT // 2]:
                self._kept.pop(old, None)
        self._kept[id] = token  # before the signal: who wakes must find it
        self._wake(id)

    def _wake(self, topic: bytes) -> None:
        with self._guard:
            signals = list(self._ears.get(topic, ()))
        for signal in signals:
            signal.set()

    # ---- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wanted():
                self._serve()
        finally:
            with self._guard:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _wanted(self) -> bool:
        with self._guard:
            if self._closed or not self._ears:
                self._thread = None  # under the guard: who comes next starts another
                return False
            return True

    def _serve(self) -> None:
        """Connect, and pass messages on until the connection ends or nobody waits any more."""
        try:
            wire = Wire(self._address, CONNECT)
        except InterlockError:
            self._stop_arriving()  # they look for themselves, and hear from the server what is wrong
            time.sleep(AGAIN)
            return
        try:
            with self._guard:
                if self._closed:
                    return
                self._wire = wire
                self._send(wire, command(b"SUBSCRIBE", self.channel, *self._channels()))
            self._hear_all(wire)
        except (OSError, EOFError, Garbled, ValueError):
            pass  # lost: whoever waits looks again
        except Failure:  # this user may not subscribe: those who wait must look, now and then
            self._stop_arriving()
            time.sleep(AGAIN)
        finally:
            with self._guard:
                self._wire = None
                self.generation = 0
                self._subscribed.clear()
                signals = [signal for ears in self._ears.values() for signal in ears]
            wire.close()
            for signal in signals:  # nobody knows what was missed: all look again
                signal.set()

    def _hear_all(self, wire: Wire) -> None:
        silent, idle_at = False, time.monotonic() + IDLE
        while True:
            replies = wire.receive(PING)
            now = time.monotonic()
            if self._ears:
                idle_at = now + IDLE
            if self._closed or now >= idle_at:
                return
            if replies:
                silent = False
                for reply in replies:
                    self._take(reply)
            elif silent:
                raise EOFError("no sign of life")
            else:
                silent = True
                with self._guard:
                    self._send(wire, command(b"PING") + self._unneeded())

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Failure):
            raise reply
        kind, channel, *rest = reply
        if kind == b"message":
            if channel == self.channel:
                id, _, token = rest[0].rpartition(b" ")
                self._hear(id, int(token))
            else:
                self._wake(channel)
        elif kind == b"subscribe":
            with self._guard:
                self._subscribed.add(channel)
                if channel == self.channel:
                    self._generations += 1
                    self.generation = self._generations
                arrived = [signal for signal, wanted in self._arriving.items() if wanted == channel]
                for signal in arrived:
                    del self._arriving[signal]
            for signal in arrived:
                signal.set()
        elif kind == b"unsubscribe":
            with self._guard:
                self._subscribed.discard(channel)

    def _stop_arriving(self) -> None:
        """There will be no subscription for now: whoever waits for one looks for itself."""
        with self._guard:
            signals = list(self._arriving)
            self._arriving.clear()
        for signal in signals:
            signal.set()

    def _channels(self) -> list[bytes]:
        return list({channel for channel in self._arriving.values() if channel != self.channel})

    def _unneeded(self) -> bytes:
        gone = [c for c in self._subscribed if c != self.channel and c not in self._ears]
        return command(b"UNSUBSCRIBE", *gone) if gone else b""

    def _send(self, wire: Wire, request: bytes) -> None:
        try:
            wire.send(request)
        except OSError:
            wire.hang_up()  # its reader finds out, and reconnects

    def resubscribe(self) -> None:
        """The server is another now: subscribe there, and let all who wait look again."""
        with self._guard:
            wire = self._wire
        if wire is not None:
            wire.hang_up()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            thread, wire = self._thread, self._wire
        if wire is not None:
            wire.hang_up()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
