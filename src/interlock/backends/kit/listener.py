"""Receives wake-ups: one subscription, kept by one thread, for all waiters of a client, threads and tasks
alike.

The thread connects when somebody waits, reconnects when the subscription is lost, and ends when nobody has
waited for a while. A waiter that waits alone may read the subscription itself: see `reader`. A grant that
arrives before its waiter listens is kept. Messages only wake waiters, or tell them of a grant that the server
has recorded already; a waiter that misses one asks again in the end.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.own_claims import Remembered
from interlock.backends.kit.reader import LOST, POLLS, SubscribedConnection, SubscriptionReader
from interlock.backends.kit.waiters import Waiters, notify
from interlock.errors import InterlockError

RECONNECT_PAUSE_S = 0.2
QUIET_S = 5.0
"""Seconds of silence after which the thread looks after the subscription and its waiters."""
MAX_TOKEN_DIGITS = 19


class Subscription(Protocol):
    """A connection on which messages arrive.

    One thread at a time calls `receive`; any thread may call `hang_up`.
    """

    def receive(self, timeout: float) -> Iterable[Any]:
        """Return the messages that have arrived, waiting up to `timeout` seconds for the first.

        Raises one of the errors that end it.
        """
        ...

    def hang_up(self) -> None:
        """Make a running `receive` return soon, or raise."""
        ...

    def close(self) -> None: ...


Topic = TypeVar("Topic", bound=Hashable)
W = TypeVar("W", bound=Signal)
S = TypeVar("S", bound=Subscription)


def token_in(text: str | bytes) -> int:
    """The token that a message names, or 0 if it names none: anybody may have sent it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_TOKEN_DIGITS else 0


class GrantWaiters(ABC, Generic[Topic, W]):
    """Waiters by topic, and grants that came before their waiter listened."""

    def after_fork(self) -> None:
        """Start afresh in a forked child, where nobody waits yet."""
        self._mutex = native.mutex()
        self._waiters: Waiters[Topic, W] = Waiters()
        self.topics = self._waiters.topics
        # The tokens that were published for claims, until their waiters take them; 0: the waiter should ask
        # again. Waiters that gave up leave some here; the oldest of those have long been answered.
        self.tokens: Remembered[Topic, int] = Remembered()
        self._subscribing: dict[W, Topic] = {}  # waiters for a subscription, each with its channel
        self._closed = False

    def has_message(self, id: Topic) -> bool:
        """Whether a message came for this claim."""
        return id in self.tokens

    def take_token(self, id: Topic) -> int | None:
        """The token of this claim's grant, 0 if it should ask again, None if nothing came."""
        return self.tokens.pop(id, None)

    def wake(self, topic: Topic) -> None:
        """Wake all waiters of a topic, so that they ask again."""
        if topic in self.topics:
            with self._mutex:
                waiters = self._waiters.of(topic)
            notify(waiters)

    def _remove(self, waiter: W, *topics: Topic) -> None:
        with self._mutex:
            self._waiters.remove(waiter, *topics)
            self._subscribing.pop(waiter, None)

    def _drop_abandoned(self) -> None:
        """Drop waiters whose loop was closed while they waited, so that no subscription is kept for them.

        Needs the mutex.
        """
        self._waiters.abandon(self._abandoned)
        for waiter in [waiter for waiter in self._subscribing if self._abandoned(waiter)]:
            del self._subscribing[waiter]  # it is among the waiters, too, and kept alive above

    def _ensure_thread(self) -> RuntimeError | None:
        """Start the thread that receives messages, if there is one and it does not run.

        Returns the error if the system cannot start it. Called under the mutex.
        """
        return None

    @abstractmethod
    def _abandoned(self, waiter: W) -> bool:
        """Whether this waiter is a task of a loop that was closed."""


class SubscriptionListener(GrantWaiters[Topic, W], Generic[Topic, W, S]):
    """Delivers messages from one subscription to all waiters."""

    thread_name: ClassVar[str]
    lost: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """Errors that end a subscription; the thread connects again."""
    refused: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors that say that this server or user cannot subscribe: waiters must poll meanwhile."""

    def after_fork(self) -> None:
        """Start afresh in a forked child: nobody waits, no thread runs, the subscription is the parent's."""
        super().after_fork()
        self._thread: threading.Thread | None = None
        self._subscription: S | None = None
        self._generations = 0
        self._set_generation(0)
        self._set_reader(None)
        self.reader: SubscriptionReader | None = None
        """`_reader` once messages arrive; waiters may then read it themselves."""

    def _set_generation(self, number: int) -> None:
        """Set the number of the present subscription; 0 while there is none."""
        self.generation = number

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

    # ---- what a backend adds --------------------------------------------------------------

    @property
    @abstractmethod
    def idle_close_s(self) -> float:
        """Seconds for which the thread and its subscription outlive the last waiter."""

    @abstractmethod
    def _connect(self) -> S | None:
        """Connect, blocking; None if no messages can arrive here. Raises `InterlockError` or OSError."""

    @abstractmethod
    def _readable(self, subscription: S) -> SubscribedConnection | None:
        """The connection if any thread may poll and read it; None if only our own thread can."""

    @abstractmethod
    def _begin(self, subscription: S) -> list[W]:
        """Ask for messages on a new connection. Returns the waiters to wake.

        Called under the mutex; must not block. `_confirm` is called here, or once the server has answered.
        """

    @abstractmethod
    def _on_message(self, message: Any) -> None:
        """Deliver one message."""

    @abstractmethod
    def _look_after(self, subscription: S, heard: bool, now: float) -> None:
        """Check that the server lives; called after each message, and after `QUIET_S` seconds of silence."""

    def _in_use(self, heard: bool) -> bool:
        """Whether the subscription is needed now."""
        return bool(self.topics)

    def _end(self) -> None:
        """Note that the subscription has ended. Called under the mutex."""

    # ---- the thread -----------------------------------------------------------------------

    def _ensure_thread(self) -> RuntimeError | None:
        if self._thread is None and not self._closed:
            thread = native.Thread(target=self._run, name=self.thread_name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                return error
            self._thread = thread  # it waits for the mutex first
        return None

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
            if self._closed or not (self.topics or self._subscribing):
                self._thread = None  # under the mutex: the next waiter starts another
                return False
            return True

    def _serve(self) -> None:
        """Connect, and deliver messages until the connection ends or nobody waits any more."""
        try:
            subscription = self._connect()
        except (InterlockError, OSError):
            subscription = (
                None  # the waiters ask the store themselves, and hear from the server what is wrong
            )
        if subscription is None:
            self._give_up_subscribing()
            time.sleep(RECONNECT_PAUSE_S)
            return
        reader = self._lendable(subscription)
        try:
            with self._mutex:
                if self._closed:
                    return
                self._subscription = subscription
                self._set_reader(reader)
                ready = self._begin(subscription)
            notify(ready)
            self._receive_all(subscription)
        except self.lost:
            pass  # waiters ask again
        except self.refused:
            self._give_up_subscribing()
            time.sleep(RECONNECT_PAUSE_S)
        finally:
            with self._mutex:
                self._subscription = self.reader = None
                self._set_reader(None)
                self._set_generation(0)
                self._end()
                waiters = self._waiters.everyone()
            (subscription if reader is None else reader).close()
            notify(waiters)  # messages may have been missed: all ask again

    def _lendable(self, subscription: S) -> SubscriptionReader | None:
        """The reader that can be lent to waiters; None if only our own thread can read."""
        connection = self._readable(subscription) if POLLS else None
        if connection is None:
            return None
        try:
            return SubscriptionReader(connection, self._on_message, (*LOST, *self.refused))
        except OSError:  # no file descriptors are left for its pipes: connecting anew would not help
            return None

    def _receive_all(self, subscription: S) -> None:
        idle_at = time.monotonic() + self.idle_close_s
        while True:
            heard = self._receive(subscription)
            now = time.monotonic()
            if self._in_use(heard):
                idle_at = now + self.idle_close_s
            if self._closed or now >= idle_at:
                return
            self._look_after(subscription, heard, now)

    def _receive(self, subscription: S) -> bool:
        """Wait for messages and deliver them; whether any came, here or to a waiter that reads for itself."""
        if self._reader is not None:
            return self._reader.wait_for_news(QUIET_S)
        heard = False
        for message in subscription.receive(QUIET_S):
            heard = True
            self._on_message(message)
        return heard

    def _confirm(self) -> None:
        """Note that messages arrive from now on. Needs the mutex."""
        self._generations += 1
        self._set_generation(self._generations)
        self.reader = self._reader

    def _give_up_subscribing(self) -> None:
        """Wake all who wait for a subscription: there is none for now, so they ask the store themselves."""
        with self._mutex:
            waiters = list(self._subscribing)
            self._subscribing.clear()
        notify(waiters)

    # ---- the end --------------------------------------------------------------------------

    def _hang_up(self, subscription: S | None, reader: SubscriptionReader | None) -> None:
        """End the connection. Its reader notices, our thread takes the reading back, and reconnects."""
        if subscription is not None:
            subscription.hang_up()
        if reader is not None:
            reader.recall()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            thread, subscription, reader = self._thread, self._subscription, self._reader
            waiting = self._waiters.close()
        notify(waiting)
        self._hang_up(subscription, reader)
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)
