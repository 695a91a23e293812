"""The waiters of one store, and what wakes them.

A topic is the id of a claim, the key of a register, or a queue. Subclasses receive the messages: `listener`
by one subscription, and `sharded_pubsub` by one for each master on which somebody waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from interlock._core.runtime import Signal
from interlock.backends.kit.listener import GrantWaiters, token_in
from interlock.backends.kit.reader import WaiterSignal
from interlock.errors import StoreUnavailable


class NoListenerThread(StoreUnavailable):
    """No thread could be started to receive messages; the next waiter tries again."""


def queue(resource: str) -> bytes:
    """The topic of all waiters of a resource. No id of a claim and no key begins like this."""
    return b"\x1e" + resource.encode()


class RedisWaiters(GrantWaiters[bytes, Signal]):
    """Sets the signals of waiters by topic."""

    # What `subscription_of` returns, if it is the same for all resources.
    only: tuple[bytes, int] | None = None

    def channel_known(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource use.

        With one channel for all, it always is.
        """
        return True

    # ---- waiters ---------------------------------------------------------------

    def listen(self, signal: Signal, *topics: bytes) -> None:
        with self._mutex:
            self._waiters.add(signal, *topics)
            self._ensure_thread()

    def enlist(self, signal: Signal, *topics: bytes) -> bool:
        """Listen, in one step with the question whether our channel is subscribed to; False if that must
        be asked.
        """
        self.listen(signal, *topics)
        return False

    def forget(self, signal: Signal, *topics: bytes) -> None:
        self._remove(signal, *topics)

    def _abandoned(self, waiter: Signal) -> bool:
        return isinstance(waiter, WaiterSignal) and waiter.abandoned

    def claim_removed(self, id: bytes) -> None:
        """We removed this claim: forget its messages, and wake those who wait for its removal."""
        if self.tokens:
            self.tokens.pop(id, None)
        self.wake(id)

    # ---- messages --------------------------------------------------------------

    def notify(self, told: Sequence[Any]) -> None:
        """Deliver the grants in a script's reply: id, token, id, token, ..."""
        for i in range(0, len(told), 2):
            self._deliver(told[i], int(told[i + 1]))

    def _deliver_message(self, message: bytes) -> None:
        """Deliver a published message: id and token."""
        id, _, token = message.rpartition(b" ")
        self._deliver(id, token_in(token))

    def _deliver(self, id: bytes, token: int) -> None:
        self.tokens.remember(id, token)  # before the signal: a waiter that wakes must find it
        self.wake(id)

    def _end_subscribing(self, channels: Collection[bytes]) -> list[Signal]:
        """Remove and return the waiters for a subscription to one of these channels. Needs the mutex."""
        found = [signal for signal, wanted in self._subscribing.items() if wanted in channels]
        for signal in found:
            del self._subscribing[signal]
        return found
