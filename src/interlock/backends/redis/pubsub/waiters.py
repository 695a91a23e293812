"""Who waits in one store, threads and tasks alike, and what came for them before they listened.

Topics are claims by their id, registers by their key, and queues. How what is published gets here is for `listener`, by one
subscription, and for `sharded`, by one for each master that somebody waits on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from interlock import native
from interlock.backends.redis.pubsub.reader import WaiterSignal
from interlock.errors import StoreUnavailable
from interlock.ports import Signal

KEPT = 4096  # messages kept for waiters that do not listen yet


class NoListenerThread(StoreUnavailable):
    """No thread could be started that hears what is published; the next who waits tries again."""


def queue(resource: str) -> bytes:
    """The topic of all who wait for a resource; no claim's id and no key is spelled like this."""
    return b"\x1e" + resource.encode()


def _abandoned_by_loop(signal: Signal) -> bool:
    return isinstance(signal, WaiterSignal) and signal.abandoned


class Waiters:
    """Sets the signals of those who wait."""

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet."""
        self._guard = native.guard()
        self._waiters: dict[bytes, dict[Signal, None]] = {}
        self._early: dict[bytes, int] = {}
        self._subscribing: dict[Signal, bytes] = {}  # who waits for a subscription, and to which channel
        self._abandoned: list[Signal] = []
        self._closed = False

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here."""
        return self._guard._is_owned()

    def channel_known(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource have; where there is one way, it is."""
        return True

    # ---- who waits ---------------------------------------------------------------

    def listen(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            self._waiters.setdefault(topic, {})[signal] = None
            self._ensure_thread()

    def _ensure_thread(self) -> bool:
        """Somebody listens, under the guard: for those whose thread is started by that. False if it cannot be."""
        return True

    def forget(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            waiters = self._waiters.get(topic)
            if waiters is not None:
                waiters.pop(signal, None)
                if not waiters:
                    del self._waiters[topic]
            self._subscribing.pop(signal, None)

    def _drop_abandoned(self) -> None:
        """Count those no more, under the guard, whose loop was closed while they waited: for them nobody need listen.

        They are kept: to collect a task is to end it, on any thread and at any time, and where it ends it wants the guard,
        which that thread may have.
        """
        for topic, waiters in list(self._waiters.items()):
            for signal in [signal for signal in waiters if _abandoned_by_loop(signal)]:
                self._abandoned.append(signal)
                del waiters[signal]
            if not waiters:
                del self._waiters[topic]
        for signal in [signal for signal in self._subscribing if _abandoned_by_loop(signal)]:
            del self._subscribing[signal]  # it listens, too, and is kept for that

    def take_token(self, id: bytes) -> int | None:
        """The token this claim was told, 0 if it should look, None if it was told nothing."""
        return self._early.pop(id, None)

    def has_message(self, id: bytes) -> bool:
        """Whether something came for this claim before it listened."""
        return id in self._early

    def claim_removed(self, id: bytes) -> None:
        """This claim was removed by us: forget what came for it, and wake whoever waits for its removal."""
        if self._early:
            self._early.pop(id, None)
        if id in self._waiters:
            self._wake(id)

    # ---- what is heard --------------------------------------------------------------

    def notify(self, told: Sequence[Any]) -> None:
        """Pass on what a script told its caller: id, token, id, token, ..."""
        for i in range(0, len(told), 2):
            self._deliver(told[i], int(told[i + 1]))

    def recheck(self, topic: bytes) -> None:
        """Have everybody who waits for a topic look again: what they were told may be lost."""
        if topic in self._waiters:
            self._wake(topic)

    def _deliver_message(self, message: bytes) -> None:
        """What a script published: id and token."""
        id, _, token = message.rpartition(b" ")
        self._deliver(id, int(token))

    def _deliver(self, id: bytes, token: int) -> None:
        if len(self._early) >= KEPT:  # of waiters that gave up: the oldest have long been answered
            for old in list(self._early)[: KEPT // 2]:
                self._early.pop(old, None)
        self._early[id] = token  # before the signal: who wakes must find it
        self._wake(id)

    def _wake(self, topic: bytes) -> None:
        with self._guard:
            signals = list(self._waiters.get(topic, ()))
        for signal in signals:
            signal.set()

    def _end_subscribing(self, channels: Collection[bytes]) -> list[Signal]:
        """Those who waited for a subscription to one of these, under the guard; they wait for none any more."""
        found = [signal for signal, wanted in self._subscribing.items() if wanted in channels]
        for signal in found:
            del self._subscribing[signal]
        return found
