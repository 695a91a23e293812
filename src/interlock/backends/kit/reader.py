"""Decides which thread or loop reads a subscription: the listener's thread, or a waiter while nobody else
waits.

A thread that waits alone borrows the reading, and a loop borrows it while only its own tasks wait. A message
then wakes its waiter directly, without waking the listener's thread first. The listener's thread still looks
after the connection, and reads again as soon as others wait, too: nobody should depend on a loop that is
stuck or on a thread that has ended. If two read at once, a lock keeps messages in order.
"""

from __future__ import annotations

import select
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from interlock._core.runtime import Signal
from interlock._support import native
from interlock._support.waiting import only_waits
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.kit.wake_pipe import WakePipe

POLLS = True  # whether waiters may read for themselves
LOST: tuple[type[Exception], ...] = (OSError, EOFError, ValueError)  # errors that end a subscription


class SubscribedConnection(Protocol):
    """A connection on which messages arrive.

    Its file descriptor can be polled, and stays the same until `close`.
    """

    def fileno(self) -> int:
        """-1 once it is closed."""
        ...

    def receive(self, timeout: float) -> Iterable[Any]:
        """Return the messages that have arrived; with a timeout of 0 it never waits.

        Raises one of the errors that end it.
        """
        ...

    def hang_up(self) -> None:
        """End the connection for every reader, and keep the descriptor."""
        ...

    def close(self) -> None: ...


class WaiterSignal:
    """The signal of a waiter: a task, or a thread, which may be reading for itself when the signal is set."""

    def __init__(self, signal: Signal, loop: Any = None) -> None:
        self.signal = signal
        self.pipe: WakePipe | None = None  # wakes its thread, if that reads for itself
        self.reader = 0  # its thread, while that delivers messages and then looks at the signal
        self._loop = loop  # None for a thread

    @property
    def abandoned(self) -> bool:
        """Whether its task is on a loop that was closed, so that it never wakes again."""
        return self._loop is not None and bool(self._loop.is_closed())

    def is_set(self) -> bool:
        return self.signal.is_set()

    def set(self) -> None:
        self.signal.set()  # first: a thread that wakes must see it
        if (pipe := self.pipe) is not None and self.reader != get_ident():
            pipe.wake()  # not for one's own message: that would be three calls of the system for each grant


class SubscriptionReader:
    """One subscribed connection, and the thread or loop that reads it now."""

    def __init__(
        self,
        connection: SubscribedConnection,
        take: Callable[[Any], None],
        lost: tuple[type[Exception], ...] = LOST,
    ) -> None:
        self._connection = connection
        self._take = take
        self._lost = lost
        self._lock = native.mutex()  # held while reading: messages are delivered in the order they came
        self._mutex = native.mutex()
        self._listener_pipe = WakePipe()  # wakes the listener's thread
        try:
            self._borrower_pipe = WakePipe()  # wakes a thread that reads for itself
        except OSError:
            self._listener_pipe.close()
            raise
        self._waiting: dict[Signal, object] = {}  # each with its loop, or None for a thread
        self._borrower: object = None  # a loop, or the signal of a thread
        self._recalled: object = None  # a loop that has not stopped yet
        # Held by a thread that reads for itself: the socket it polls must not be closed.
        self._polling = threading.Lock()
        self._ended = False
        self._news = False
        self._own, self._lent, self._borrowed = select.poll(), select.poll(), select.poll()
        for poll, of in (
            (self._own, (connection, self._listener_pipe)),
            (self._lent, (self._listener_pipe,)),
            (self._borrowed, (connection, self._borrower_pipe)),
        ):
            for one in of:
                poll.register(one, select.POLLIN)

    # ---- the listener's thread -------------------------------------------------

    def wait_for_news(self, timeout: float) -> bool:
        """Wait until a message came, here or to a borrower, or until the time is up.

        Raises the error that ends it.
        """
        poll = self._own if self._borrower is None else self._lent
        for number, _ in poll.poll(timeout * 1000):
            if number == self._listener_pipe.fileno():
                self._listener_pipe.clear()
            else:
                self.read()
        heard, self._news = self._news, False
        return heard

    def between(self, call: Callable[[], object]) -> None:
        """Call this while nobody reads, for connections that only one thread may use at a time."""
        with self._lock:
            call()

    def close(self) -> None:
        """Close it where it is read; otherwise a reader could poll another connection with the same file
        descriptor.

        A borrowing loop closes it in its next turn, and a thread that reads for itself when it stops.
        """
        with self._mutex:
            self._ended = True
            self._connection.hang_up()  # now: a loop that is stuck must not keep it open at the server
            self._borrower_pipe.wake()
            loop = (
                self._recalled
                if isinstance(self._borrower, WaiterSignal)
                else self._borrower or self._recalled
            )
        if loop is None or not _on(loop, self._close, loop):
            self._close(None)

    def _close(self, loop: Any) -> None:
        if loop is not None:
            self._stop_on(loop)
        if self._polling.acquire(blocking=False):  # otherwise the thread that polls it closes it
            self._connection.close()
            self._listener_pipe.close()
            self._borrower_pipe.close()
            self._polling.release()

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here, or of delivering a message."""
        return self._mutex._is_owned() or self._lock._is_owned()

    # ---- any reader ------------------------------------------------------------

    def read(self) -> None:
        """Deliver the messages that have arrived, if any."""
        with self._lock:
            try:
                for reply in self._connection.receive(0.0):
                    self._news = True
                    self._take(reply)
            except BaseException:  # an interruption, too: part of a message may be lost
                self._connection.hang_up()
                raise

    def _read_on(self, loop: Any) -> None:
        try:
            self.read()
        except Exception:  # whatever it was, the listener's thread notices the end and reconnects
            with self._mutex:
                self._borrower = None
                self._stop_on(loop)
            self._listener_pipe.wake()

    def _stop_on(self, loop: Any) -> None:
        if (number := self._connection.fileno()) >= 0:
            loop.remove_reader(number)
        self._recalled = None  # not before this: now another thread may close it

    def read_until(self, signal: WaiterSignal, timeout: float) -> None:
        """Read on the borrowing thread until its signal is set, the time is up or the connection is lost."""
        until = time.monotonic() + timeout
        left = timeout
        try:
            while not signal.is_set() and left > 0 and self._read_once(signal, left):
                left = until - time.monotonic()
        finally:
            if self._ended and self._recalled is None:  # otherwise the recalled loop closes it
                self._close(None)

    def _read_once(self, signal: WaiterSignal, timeout: float) -> bool:
        with self._polling:
            if self._ended:
                return False
            for number, _ in self.wait(timeout):
                if number == self._borrower_pipe.fileno():
                    self._borrower_pipe.clear()
                    continue
                signal.reader = get_ident()
                try:
                    self.read()
                except self._lost:  # as above; what a signal handler of this thread raises goes to its caller
                    return False
                finally:
                    signal.reader = 0
        return True

    @only_waits
    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Poll for something to read."""
        return self._borrowed.poll(timeout * 1000)

    # ---- lending --------------------------------------------------------------------

    def borrow(self, signal: Signal, loop: Any) -> bool:
        """Register a waiter; True if the calling thread is to read for itself.

        A loop that borrows it reads for its tasks.
        """
        with self._mutex:
            self._waiting[signal] = loop
            if self._ended:
                return False
            if self._borrower is not None:
                if self._borrower is not loop:  # the borrower may be stuck, in a signal handler, or gone
                    self._recall()
            elif loop is not None:
                if self._recalled is None and all(where is loop for where in self._waiting.values()):
                    self._lend(loop)
            elif len(self._waiting) == 1:
                assert isinstance(signal, WaiterSignal)
                self._borrower, signal.pipe = signal, self._borrower_pipe
                return True
            return False

    def recall(self) -> None:
        """Have the listener's thread read again; a thread that reads for itself may go on doing so."""
        with self._mutex:
            if self._borrower is not None and not isinstance(self._borrower, WaiterSignal):
                self._recall()
        self._listener_pipe.wake()

    def _recall(self) -> None:
        borrower, self._borrower = self._borrower, None
        if not isinstance(borrower, WaiterSignal):  # a thread may go on reading, which does no harm
            self._recalled = borrower  # set first: the loop may stop before this call returns
            if not _on(borrower, self._stop_on, borrower):
                self._recalled = None
        self._listener_pipe.wake()

    def _lend(self, loop: Any) -> None:
        try:
            loop.add_reader(self._connection.fileno(), self._read_on, loop)
        except (NotImplementedError, OSError, RuntimeError):
            return  # this kind of loop cannot do it, or cannot do it now
        self._borrower = loop

    def give_back(self, signal: Signal) -> None:
        """End the reading by this waiter.

        The listener's thread reads again, for other waiters or to meet the end.
        """
        with self._mutex:
            if self._borrower is signal:
                self._borrower = None
                self._listener_pipe.wake()

    def leave(self, signal: Signal) -> None:
        """Unregister a waiter."""
        with self._mutex:
            self._waiting.pop(signal, None)
            if self._borrower is signal:
                self._borrower = None
                if self._waiting:
                    self._listener_pipe.wake()


def _on(loop: Any, call: Callable[..., object], *args: object) -> bool:
    """Have a loop run a call; False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True


class ReadingRuntime:
    """Waits as its runtime does, and lets a waiter read the subscription meanwhile if nobody else waits."""

    def __init__(
        self, runtime: WaitRuntime, reader: Callable[[], SubscriptionReader | None], loop: Callable[[], Any]
    ) -> None:
        self._runtime = runtime
        self._reader = reader
        self._loop = loop  # of the waiter; returns None for a thread
        self.now = runtime.now

    def signal(self) -> Signal:
        return WaiterSignal(self._runtime.signal(), self._loop())

    async def wait(self, signal: WaiterSignal, timeout: float | None) -> bool:
        reader = self._reader()
        if reader is None or timeout is None:
            return await self._runtime.wait(signal.signal, timeout)
        until = self.now() + timeout
        try:
            if reader.borrow(signal, self._loop()):
                reader.read_until(signal, timeout)
                if signal.is_set():
                    return True
                reader.give_back(signal)
            return await self._runtime.wait(signal.signal, max(0.0, until - self.now()))
        finally:
            reader.leave(signal)
