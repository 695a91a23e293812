"""Receives wake-ups from a database server: one subscription for all waiters of a client.

A waiter that waits alone may read the subscription itself, where that is possible (decision 0013). The bell
of the subscription stands in the row of every claim that waits (see `steps`). Where wake-ups cannot arrive (a
pooler in transaction mode), `polling` is true and waiters look at the table instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from interlock.backends.kit import listener
from interlock.backends.kit.listener import SubscriptionListener, token_in
from interlock.backends.kit.waiters import notify
from interlock.backends.sql.dialect import PolledSubscription, Subscription
from interlock.backends.sql.waking import Waiter
from interlock.errors import StoreUnavailable

IDLE_CLOSE_S = 30.0  # how long thread and subscription outlive the last waiter


class Listener(SubscriptionListener[str, Waiter, Subscription]):
    """Delivers messages from one subscription to all waiters: see `Waking`. One more topic, `w<resource>`,
    is for all waiters of a resource within this client.
    """

    thread_name = "interlock-listener"

    def __init__(self, connect: Callable[[], Subscription | None]) -> None:
        self._make = connect
        self._subscription = None
        self.after_fork()

    def after_fork(self) -> None:
        if self._subscription is not None:
            self._subscription.abandon()
        super().after_fork()
        self.bell = ""  # of the present subscription
        self.polling = False

    @property
    def idle_close_s(self) -> float:
        return IDLE_CLOSE_S

    # ---- waiters -----------------------------------------------------------------------

    def listen(self, waiter: Waiter) -> None:
        with self._mutex:
            self._waiters.add(waiter, *waiter.topics)

    def forget(self, waiter: Waiter) -> None:
        self._remove(waiter, *waiter.topics)

    def _abandoned(self, waiter: Waiter) -> bool:
        loop = getattr(waiter.signal, "_loop", None)
        return loop is not None and loop.is_closed()

    def subscribed(self, waiter: Waiter) -> bool:
        with self._mutex:
            if not self.generation:
                self._subscribing[waiter] = ""  # there is one subscription for all
            error = self._ensure_thread()
            if error is not None:
                raise StoreUnavailable(
                    f"no thread could be started to listen for wake-ups: {error}"
                ) from error
            return bool(self.generation)

    def take_grant(self, id: str) -> int | None:
        """The token of this claim's grant.

        That it should ask again (0) stays on record until it asks: a wait that ends just then must not hide
        it.
        """
        token = self.tokens.get(id)
        if token:
            self.tokens.pop(id, None)
        return token

    # ---- messages ----------------------------------------------------------------------

    def deliver(self, message: str) -> None:
        """Wake the waiters that a message is for; '' wakes everybody."""
        if message[:1] == "c":
            id, _, token = message[1:].rpartition(" ")
            self.tokens.remember(id, token_in(token))  # before the signal: a waiter that wakes must find it
            self.wake("c" + id)
        elif message:
            self.wake(message)
        else:
            with self._mutex:
                waiters = self._waiters.everyone()
            notify(waiters)

    def deliver_all(self, messages: str) -> None:
        """Deliver the column `messages` of a step."""
        for message in messages.split("\n"):
            self.deliver(message)

    def removed(self, id: str) -> None:
        """We have removed this claim: forget its messages, and wake those who wait for its removal."""
        if self.tokens:
            self.tokens.pop(id, None)
        self.wake("c" + id)

    # ---- the subscription ----------------------------------------------------------------

    def _connect(self) -> Subscription | None:
        subscription = self._make()
        if subscription is None:
            self.polling = True
        return subscription

    def _readable(self, subscription: Subscription) -> PolledSubscription | None:
        if isinstance(subscription, PolledSubscription) and subscription.polls:
            return subscription
        return None

    def _begin(self, subscription: Subscription) -> list[Waiter]:
        self.bell = subscription.bell
        self._quiet_since = time.monotonic()
        self._confirm()
        ready = list(self._subscribing)
        self._subscribing.clear()
        return ready

    def _on_message(self, message: str) -> None:
        self.deliver(message)

    def _look_after(self, subscription: Subscription, heard: bool, now: float) -> None:
        if heard:
            self._quiet_since = now
        elif self._reader is not None and now >= self._quiet_since + listener.QUIET_S:
            # A subscription that our own thread reads asks the server by itself, in `receive`.
            assert isinstance(subscription, PolledSubscription)
            self._reader.between(subscription.probe)
            self._quiet_since = now
        with self._mutex:
            self._drop_abandoned()

    def _in_use(self, heard: bool) -> bool:
        return heard or bool(self.topics)

    def _end(self) -> None:
        self.bell = ""
