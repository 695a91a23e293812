"""The registry of waiters of one store, threads and tasks alike, with messages that came before their waiter
listened.

A topic is the id of a claim, the key of a register, or a queue. Subclasses receive the messages: `listener`
by one subscription, and `sharded_pubsub` by one for each master on which somebody waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.reader import WaiterSignal
from interlock.backends.kit.waiters import Waiters
from interlock.errors import StoreUnavailable

KEPT = 4096  # messages kept for waiters that do not listen yet
DIGITS = 19  # of the largest token


class NoListenerThread(StoreUnavailable):
    """No thread could be started to receive messages; the next waiter tries again."""


def queue(resource: str) -> bytes:
    """The topic of all waiters of a resource. No id of a claim and no key begins like this."""
    return b"\x1e" + resource.encode()


def _abandoned_by_loop(signal: Signal) -> bool:
    return isinstance(signal, WaiterSignal) and signal.abandoned


class GrantWaiters:
    """Sets the signals of waiters by topic."""

    # What `subscription_of` returns, if it is the same for all resources.
    only: tuple[bytes, int] | None = None

    def after_fork(self) -> None:
        """Start afresh in a forked child, where nobody waits yet."""
        self._mutex = native.mutex()
        self._registry: Waiters[bytes, Signal] = Waiters()
        self._waiters = self._registry.topics
        self._early: dict[bytes, int] = {}
        self._subscribing: dict[Signal, bytes] = {}  # waiters for a subscription, each with its channel
        self._closed = False

    def channel_known(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource use.

        With one channel for all, it always is.
        """
        return True

    # ---- waiters ---------------------------------------------------------------

    def listen(self, signal: Signal, *topics: bytes) -> None:
        with self._mutex:
            self._registry.add(signal, *topics)
            self._ensure_thread()

    def enlist(self, signal: Signal, *topics: bytes) -> bool:
        """Listen, in one step with the question whether our channel is subscribed to; False if that must
        be asked.
        """
        self.listen(signal, *topics)
        return False

    def _ensure_thread(self) -> bool:
        """Start the thread that receives messages, if there is one.

        Called under the mutex; False if it cannot be started.
        """
        return True

    def forget(self, signal: Signal, *topics: bytes) -> None:
        with self._mutex:
            self._registry.remove(signal, *topics)
            self._subscribing.pop(signal, None)

    def _drop_abandoned(self) -> None:
        """Drop waiters whose loop was closed while they waited, so that no subscription is kept for them.

        Needs the mutex.
        """
        self._registry.abandon(_abandoned_by_loop)
        for signal in [signal for signal in self._subscribing if _abandoned_by_loop(signal)]:
            del self._subscribing[signal]  # it is among the waiters, too, and kept alive above

    def take_token(self, id: bytes) -> int | None:
        """The token that was published for this claim, 0 if it should claim again, None if nothing came."""
        return self._early.pop(id, None)

    def has_message(self, id: bytes) -> bool:
        """Whether a message came for this claim."""
        return id in self._early

    def claim_removed(self, id: bytes) -> None:
        """We removed this claim: forget its messages, and wake those who wait for its removal."""
        if self._early:
            self._early.pop(id, None)
        if id in self._waiters:
            self._wake(id)

    # ---- messages --------------------------------------------------------------

    def notify(self, told: Sequence[Any]) -> None:
        """Deliver the grants in a script's reply: id, token, id, token, ..."""
        for i in range(0, len(told), 2):
            self._deliver(told[i], int(told[i + 1]))

    def recheck(self, topic: bytes) -> None:
        """Wake all waiters of a topic, so that they ask again: a message for them may be lost."""
        if topic in self._waiters:
            self._wake(topic)

    def _deliver_message(self, message: bytes) -> None:
        """Deliver a published message: id and token.

        Anybody may have sent it: if that is no number, the waiter asks.
        """
        id, _, token = message.rpartition(b" ")
        self._deliver(id, int(token) if token.isdigit() and len(token) <= DIGITS else 0)

    def _deliver(self, id: bytes, token: int) -> None:
        if len(self._early) >= KEPT:  # left by waiters that gave up; the oldest have long been answered
            for old in list(self._early)[: KEPT // 2]:
                self._early.pop(old, None)
        self._early[id] = token  # before the signal: a waiter that wakes must find it
        with self._mutex:
            signals = list(self._waiters.get(id, ()))
        for signal in signals:
            signal.set()

    def _wake(self, topic: bytes) -> None:
        with self._mutex:
            signals = list(self._waiters.get(topic, ()))
        for signal in signals:
            signal.set()

    def _end_subscribing(self, channels: Collection[bytes]) -> list[Signal]:
        """Remove and return the waiters for a subscription to one of these channels. Needs the mutex."""
        found = [signal for signal, wanted in self._subscribing.items() if wanted in channels]
        for signal in found:
            del self._subscribing[signal]
        return found
