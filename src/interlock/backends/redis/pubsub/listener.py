"""Hearing of grants: one subscription for all who wait in this store, threads and tasks alike, kept by one thread.

The store's channel stands in the record of every claim it makes. A script that lets a claim in, or removes it for
another, publishes `id token` there (token 0: look again); scripts run by this store itself tell it in their
reply. What arrives before its waiter listens is kept for it. Publishing only wakes and tells: the scripts decide,
and whoever waits looks again by itself in the end.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from interlock.backends.redis.address import Route
from interlock.backends.redis.pubsub.heartbeat import PING, Pulse
from interlock.backends.redis.pubsub.reader import POLLS, Reading
from interlock.backends.redis.pubsub.waiters import Ears, NobodyListens
from interlock.backends.redis.transport.pool import Wire, connected
from interlock.backends.redis.wire.resp import Failure, Garbled, command
from interlock.errors import InterlockError
from interlock.ports import Signal

IDLE = 10.0  # seconds the thread outlives the last who waited
AGAIN = 0.2  # seconds between attempts to reconnect


class Listener(Ears):
    """Passes on what is published, by one subscription for all who wait."""

    def __init__(self, address: Route) -> None:
        self._address = address
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, no thread runs, and the channel is the parent's."""
        super().after_fork()
        self.channel = b"interlock:" + os.urandom(8).hex().encode()
        self.generation = 0  # counts subscriptions; 0 while there is none
        self._generations = 0
        self._subscribed: set[bytes] = set()  # confirmed by the server
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None
        self._current: Reading | None = None
        self.reading: Reading | None = None  # those who wait may read it themselves

    def inside(self) -> bool:
        reading = self._current
        return self._guard._is_owned() or (reading is not None and reading.inside())

    @property
    def registers(self) -> Listener:
        """Who hears of registers: the same, here."""
        return self

    def line(self, resource: str) -> tuple[bytes, int]:
        """The channel of our claims on a resource, and which subscription to it this is; 0 while there is none."""
        return self.channel, self.generation

    def subscribed(self, channel: bytes, signal: Signal) -> bool:
        """True if the channel is subscribed to; otherwise the signal is set once it is, and nothing was missed."""
        with self._guard:
            if channel in self._subscribed:
                return True
            self._arriving[signal] = channel
            wire = self._wire
            if wire is not None:
                self._send(wire, command(b"SUBSCRIBE", channel))
            if not self._attend():
                raise NobodyListens(f"{self._address.place}: no thread could be started to listen for grants")
            return False

    # ---- the thread -------------------------------------------------------------------

    def _attend(self) -> bool:
        """Have a thread, which waits for the guard; False if the system has none to spare."""
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name="interlock-redis", daemon=True)
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
            with self._guard:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _wanted(self) -> bool:
        with self._guard:
            self._leave_behind()
            if self._closed or not (self._ears or self._arriving):
                self._thread = None  # under the guard: who comes next starts another
                return False
            return True

    def _serve(self) -> None:
        """Connect, and pass messages on until the connection ends or nobody waits any more."""
        try:
            wire = connected(self._address, self._address.connect_timeout)
        except InterlockError:
            self._stop_arriving()  # they look for themselves, and hear from the server what is wrong
            time.sleep(AGAIN)
            return
        try:
            with self._guard:
                if self._closed:
                    return
                self._wire = wire
                self._current = self._lendable(wire)
                wire.share()  # whoever sends has the guard, and all who wait need it
                self._send(wire, command(b"SUBSCRIBE", self.channel, *self._channels()))
            self._hear_all(wire)
        except (OSError, EOFError, Garbled, ValueError):
            pass  # lost: whoever waits looks again
        except Failure:  # this user may not subscribe: those who wait must look, now and then
            self._stop_arriving()
            time.sleep(AGAIN)
        finally:
            with self._guard:
                self._wire = self.reading = None
                reading, self._current = self._current, None
                self.generation = 0
                self._subscribed.clear()
                signals = [signal for ears in self._ears.values() for signal in ears]
            (wire if reading is None else reading).close()
            for signal in signals:  # nobody knows what was missed: all look again
                signal.set()

    def _lendable(self, wire: Wire) -> Reading | None:
        """How it is lent; None where only our thread can read it."""
        try:
            return Reading(wire, self._take) if POLLS and wire.polls else None
        except OSError:  # no files are left for its bells: to connect anew would not help
            return None

    def _hear_all(self, wire: Wire) -> None:
        pulse, idle_at = Pulse(PING), time.monotonic() + IDLE
        while True:
            heard = self._read(wire)
            now = time.monotonic()
            if self._ears:
                idle_at = now + IDLE
            if self._closed or now >= idle_at:
                return
            if pulse.faint(heard, now):
                with self._guard:
                    self._leave_behind()
                    self._send(wire, command(b"PING") + self._unneeded())

    def _read(self, wire: Wire) -> bool:
        """Whether anything came, after waiting for it."""
        if self._current is not None:
            return self._current.attend(PING)
        replies = wire.receive(PING)
        for reply in replies:
            self._take(reply)
        return bool(replies)

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Failure):
            raise reply
        kind, channel, *rest = reply
        if kind == b"message":
            if channel == self.channel:
                self._grant(rest[0])
            else:
                self._wake(channel)
        elif kind == b"subscribe":
            with self._guard:
                self._subscribed.add(channel)
                if channel == self.channel:
                    self._generations += 1
                    self.generation = self._generations
                    self.reading = self._current
                arrived = self._arrived((channel,))
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
            self._hang_up(wire, self._current)

    def _hang_up(self, wire: Wire | None, reading: Reading | None) -> None:
        """Its reader finds out; our thread reads then, if it did not: it reconnects."""
        if wire is not None:
            wire.hang_up()
        if reading is not None:
            reading.recall()

    def resubscribe(self) -> None:
        """The server is another now: subscribe there, and let all who wait look again."""
        with self._guard:
            wire, reading = self._wire, self._current
        self._hang_up(wire, reading)

    def close(self) -> None:
        with self._guard:
            self._closed = True
            thread, wire, reading = self._thread, self._wire, self._current
        self._hang_up(wire, reading)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
