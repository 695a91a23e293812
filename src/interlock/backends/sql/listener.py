"""Receives wake-ups: one subscription, kept by one thread, for all waiters of a client, threads and tasks
alike.

A waiter that waits alone may read the subscription itself, where that is possible (decision 0013): see
`kit.reader`. The bell of the subscription stands in the row of every claim that waits (see `steps`). A
message that arrives before its waiter listens is kept. Messages only wake waiters, or tell them of a grant
that stands in the table already; a waiter that misses one asks again in the end. Where wake-ups cannot arrive
(a pooler in transaction mode), `polling` is true and waiters look at the table instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from interlock._support import native
from interlock.backends.kit.reader import POLLS, SubscriptionReader
from interlock.backends.kit.waiters import Waiters, notify
from interlock.backends.sql.dialect import PolledSubscription, Subscription
from interlock.backends.sql.wakeups import Waiter
from interlock.errors import InterlockError, StoreUnavailable

IDLE = 30.0  # seconds for which thread and subscription outlive the last waiter
AGAIN = 0.2  # seconds between attempts to reconnect
TURN = 5.0  # seconds after which the thread looks up if nothing arrives
KEPT = 4096  # messages kept for waiters that do not listen yet
DIGITS = 19  # of the largest token


def _of_closed_loop(waiter: Waiter) -> bool:
    loop = getattr(waiter.signal, "_loop", None)
    return loop is not None and loop.is_closed()


class Listener:
    """Delivers messages from one subscription to all waiters: see `Wakeups`. One more topic, `w<resource>`,
    is for all waiters of a resource within this client.
    """

    def __init__(self, connect: Callable[[], Subscription | None]) -> None:
        self._connect = connect
        self._subscription: Subscription | None = None
        self._start()

    def _start(self) -> None:
        self._mutex = native.mutex()
        self._waiters: Waiters[str, Waiter] = Waiters()
        self._subscribing: dict[Waiter, None] = {}
        self._tokens: dict[str, int] = {}  # by claim: the token of its grant, 0 if it should ask again
        self._thread: threading.Thread | None = None
        self._closed = False
        self.reader: SubscriptionReader | None = None  # of the present subscription, if waiters may read it
        self._generations = 0
        self.generation = 0  # counts subscriptions; 0 while there is none
        self.bell = ""  # of the present subscription
        self.polling = False

    def after_fork(self) -> None:
        """Start afresh in a forked child: nobody waits, no thread runs, and the subscription is the
        parent's.
        """
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.abandon()
        self._start()

    def inside(self) -> bool:
        reader = self.reader
        return self._mutex._is_owned() or (reader is not None and reader.inside())

    # ---- waiters -----------------------------------------------------------------------

    def listen(self, waiter: Waiter) -> None:
        with self._mutex:
            self._waiters.add(waiter, *waiter.topics)

    def forget(self, waiter: Waiter) -> None:
        with self._mutex:
            self._waiters.remove(waiter, *waiter.topics)
            self._subscribing.pop(waiter, None)

    def subscribed(self, waiter: Waiter) -> bool:
        with self._mutex:
            if self.generation:
                self._ensure_thread()
                return True
            self._subscribing[waiter] = None
            self._ensure_thread()
            return False

    def has_message(self, id: str) -> bool:
        return id in self._tokens

    def take_token(self, id: str) -> int | None:
        """The token of this claim's grant, 0 if it should ask again, None if nothing came."""
        return self._tokens.pop(id, None)

    def take_grant(self, id: str) -> int | None:
        """The token of this claim's grant.

        That it should ask again (0) stays on record until it asks: a wait that ends just then must not hide
        it.
        """
        token = self._tokens.get(id)
        if token:
            self._tokens.pop(id, None)
        return token

    # ---- messages ----------------------------------------------------------------------

    def deliver(self, message: str) -> None:
        """Wake the waiters that a message is for; '' wakes everybody."""
        if message[:1] == "c":
            id, _, token = message[1:].rpartition(" ")
            if len(self._tokens) >= KEPT:  # left by waiters that gave up; the oldest have long been answered
                for old in list(self._tokens)[: KEPT // 2]:
                    self._tokens.pop(old, None)
            # Before the signal: a waiter that wakes must find it. Anybody may have sent it: if it is no
            # number, the waiter asks.
            self._tokens[id] = int(token) if token.isdecimal() and len(token) <= DIGITS else 0
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
        if self._tokens:
            self._tokens.pop(id, None)
        self.wake("c" + id)

    def wake(self, topic: str) -> None:
        if topic in self._waiters.topics:
            with self._mutex:
                waiters = self._waiters.of(topic)
            notify(waiters)

    # ---- the thread --------------------------------------------------------------------

    def _ensure_thread(self) -> None:
        """Start the thread if it does not run. Called under the mutex, which the new thread waits for."""
        if self._thread is None and not self._closed:
            thread = native.Thread(target=self._run, name="interlock-listener", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreUnavailable(
                    f"no thread could be started to listen for wake-ups: {error}"
                ) from error
            self._thread = thread

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
            self._waiters.abandon(_of_closed_loop)
            if self._closed or not (self._waiters or self._subscribing):
                self._thread = None  # under the mutex: the next waiter starts another
                return False
            return True

    def _serve(self) -> None:
        """Connect, and deliver messages until the subscription is lost or nobody waits any more."""
        try:
            subscription = self._connect()
        except (InterlockError, OSError):
            # The waiters ask the store themselves, and hear from the server what is wrong.
            self._end_subscribing()
            time.sleep(AGAIN)
            return
        if subscription is None:
            self.polling = True
            self._end_subscribing()
            time.sleep(AGAIN)
            return
        reader = self._lendable(subscription)
        try:
            with self._mutex:
                if self._closed:
                    return
                self._subscription, self.bell, self.reader = subscription, subscription.bell, reader
                self._generations += 1
                self.generation = self._generations
            self._end_subscribing()
            self._receive_all(subscription, reader)
        except OSError:
            pass  # the connection is lost: waiters ask again
        finally:
            with self._mutex:
                self._subscription, self.bell, self.reader, self.generation = None, "", None, 0
                waiters = self._waiters.everyone()
            (subscription if reader is None else reader).close()
            notify(waiters)  # messages may have been missed: all ask again

    def _lendable(self, subscription: Subscription) -> SubscriptionReader | None:
        """The reader that can be lent to waiters; None if only our own thread can read."""
        if not (POLLS and isinstance(subscription, PolledSubscription) and subscription.polls):
            return None
        try:
            return SubscriptionReader(subscription, self.deliver)
        except OSError:  # no file descriptors are left for its pipes: connecting anew would not help
            return None

    def _receive_all(self, subscription: Subscription, reader: SubscriptionReader | None) -> None:
        quiet_since = time.monotonic()
        idle_at = quiet_since + IDLE
        while True:
            heard = self._receive(subscription, reader)
            now = time.monotonic()
            if heard:
                quiet_since = now
            elif reader is not None and now >= quiet_since + TURN:  # or it was woken for something else
                assert isinstance(subscription, PolledSubscription)
                reader.between(subscription.probe)
                quiet_since = now
            if self._waiters or heard:
                idle_at = now + IDLE
            if self._closed or now >= idle_at:
                return
            with self._mutex:
                self._waiters.abandon(_of_closed_loop)

    def _receive(self, subscription: Subscription, reader: SubscriptionReader | None) -> bool:
        """Wait for messages and deliver them; whether any came, here or to a waiter that reads for itself."""
        if reader is not None:
            return reader.wait_for_news(TURN)
        messages = subscription.receive(TURN)
        for message in messages:
            self.deliver(message)
        return bool(messages)

    def _end_subscribing(self) -> None:
        with self._mutex:
            waiters = list(self._subscribing)
            self._subscribing.clear()
        notify(waiters)

    def reconnect(self) -> None:
        """Another server may have taken over: listen there, and have all waiters ask again."""
        with self._mutex:
            subscription, reader = self._subscription, self.reader
        self._hang_up(subscription, reader)

    def _hang_up(self, subscription: Subscription | None, reader: SubscriptionReader | None) -> None:
        """End the connection.

        Its reader notices, and our thread takes the reading back, and reconnects if somebody waits.
        """
        if subscription is not None:
            subscription.hang_up()
        if reader is not None:
            reader.recall()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            thread, subscription, reader = self._thread, self._subscription, self.reader
        self._hang_up(subscription, reader)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
