"""Races between readers of a subscription; each of them has gone wrong once."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis

import interlock
from interlock.backends.kit import listener
from interlock.backends.kit import reader as module
from interlock.backends.kit.reader import SubscriptionReader, WaiterSignal
from interlock.backends.redis.transport.pool import BlockingConnection
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import Server
from tests.attacks.stage import ENVIRONMENT, eventually
from tests.attacks.strike import strikes
from tests.patience import PATIENCE
from tests.redis.reader import left_to_the_borrower, reading, subscribed
from tests.subscriptions import SOON, borrower, handed_over, in_thread

WAITS_ALONE = """
import sys, threading, time, interlock
from interlock.backends.kit.reader import WaiterSignal
interlock.release_on_signal()
client = interlock.connect(sys.argv[1])
def tell():
    while not isinstance(getattr(client._core.store._listener.reader, "_borrower", None), WaiterSignal):
        time.sleep(0.001)
    print("reads", flush=True)
threading.Thread(target=tell, daemon=True).start()
client.lock("taken").acquire()
"""


class Line:
    """A wire to a server that says nothing."""

    def __init__(self) -> None:
        self._ours, self._server = socket.socketpair()
        self.says: list[Any] = []
        self.before_number: Callable[[], object] = lambda: None

    def fileno(self) -> int:
        self.before_number()
        return self._ours.fileno()

    def receive(self, timeout: float) -> list[Any]:
        if not self._ours.recv(1, socket.MSG_DONTWAIT):
            raise EOFError
        return self.says

    def hang_up(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ours.close()
        self._server.close()


class Loop:
    """Watches numbers. What it is told to call it calls at once, as one in another thread may; or when it turns."""

    def __init__(self, *, at_once: bool) -> None:
        self.watched: set[int] = set()
        self._at_once = at_once
        self._later: list[tuple[Callable[..., object], Any]] = []

    def add_reader(self, number: int, call: object, loop: object) -> None:
        self.watched.add(number)

    def remove_reader(self, number: int) -> None:
        self.watched.discard(number)

    def call_soon_threadsafe(self, call: Callable[..., object], argument: object) -> None:
        self._later.append((call, argument))
        if self._at_once:
            self.turn()

    def turn(self) -> None:
        later, self._later = self._later, []
        for call, argument in later:
            call(argument)


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


@pytest.fixture
def lent(line: Line) -> SubscriptionReader:
    return SubscriptionReader(cast(BlockingConnection, line), lambda reply: None)


def waiter_signal() -> WaiterSignal:
    return WaiterSignal(threading.Event())


class TestALoopThatIsCalledBack:
    def test_may_stop_before_the_caller_is_back_and_others_may_borrow_then(
        self, lent: SubscriptionReader
    ) -> None:
        first, second = Loop(at_once=True), Loop(at_once=True)
        one, other = waiter_signal(), waiter_signal()
        lent.borrow(one, first)
        lent.borrow(other, second)  # calls the first back
        lent.leave(one)
        lent.leave(other)
        lent.borrow(other, second)
        assert lent._borrower is second
        lent.close()

    def test_has_stopped_before_the_number_can_be_anothers(
        self, line: Line, lent: SubscriptionReader
    ) -> None:
        """Or the loop keeps it, and whoever is given that number next cannot be watched there."""
        first = Loop(at_once=False)
        lent.borrow(waiter_signal(), first)
        lent.borrow(waiter_signal(), Loop(at_once=True))
        calls = [lent.close]
        line.before_number = lambda: calls and calls.pop()()  # by another thread, just then
        first.turn()
        first.turn()
        assert not first.watched
        assert line._ours.fileno() == -1


class TestAThreadThatReadsForItself:
    def test_does_not_poll_numbers_that_are_anothers_by_now(
        self, line: Line, lent: SubscriptionReader
    ) -> None:
        """The subscription ends between its look at that and its poll; others open files at once."""
        mine, polls, opened = waiter_signal(), lent._borrowed, list[socket.socket]()

        class Late:
            def poll(self, timeout: float) -> Any:
                if not opened:
                    lent.close()
                    opened.extend(side for _ in range(5) for side in socket.socketpair())
                return polls.poll(timeout)

        lent._borrowed = cast(Any, Late())
        assert lent.borrow(mine, None)
        with at_most(SOON):
            lent.read_until(mine, 5.0)
        lent.leave(mine)
        assert line._ours.fileno() == -1
        for side in opened:
            side.close()

    def test_does_not_keep_what_its_signal_handlers_raise_from_its_caller(self, line: Line) -> None:
        """They run wherever it is: where a message is taken, too."""

        class Alarm(Exception):
            pass

        def interrupted(reply: object) -> None:
            raise Alarm

        lent, mine = SubscriptionReader(cast(BlockingConnection, line), interrupted), waiter_signal()
        line.says.append(b"hello")
        assert lent.borrow(mine, None)
        line._server.send(b"!")
        with pytest.raises(Alarm):
            lent.read_until(mine, 5.0)
        lent.leave(mine)
        lent.close()

    def test_does_not_wake_itself_for_its_own_message(self, line: Line) -> None:
        """The byte would stay in the pipe and end the next wait, which costs three calls of the system for each grant."""
        mine = waiter_signal()
        lent = SubscriptionReader(cast(BlockingConnection, line), lambda reply: mine.set())
        line.says.append(b"hello")
        assert lent.borrow(mine, None)
        line._server.send(b"!")
        lent.read_until(mine, 5.0)
        assert mine.is_set()
        assert not lent._borrowed.poll(0)
        lent.leave(mine)
        lent.close()

    def test_is_woken_by_a_signal_handler_of_its_own_thread(
        self, line: Line, lent: SubscriptionReader
    ) -> None:
        """The handler runs in the middle of the poll, on the thread that reads, and the poll goes on after it."""
        mine = waiter_signal()
        before = signal.signal(signal.SIGALRM, lambda *_: mine.set())
        try:
            assert lent.borrow(mine, None)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with at_most(SOON):
                lent.read_until(mine, 30.0)
            assert mine.is_set()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            lent.leave(mine)
            lent.close()

    def test_keeps_nobody_waiting_while_it_handles_a_signal(self, server: Server, url: str) -> None:
        """Its handlers run in the middle of the poll, and may take their time, or wait for who waits here."""
        told: list[float] = []
        with interlock.connect(url) as client, interlock.connect(url) as other:
            subscribed(client, other)
            held = other.lock("first").acquire()
            assert held is not None

            def handle(*_: object) -> None:
                told.append(handed_over(client, other, "second"))
                held.release()

            def direct() -> None:
                eventually(lambda: isinstance(borrower(client), WaiterSignal))
                left_to_the_borrower(client, server)
                os.kill(os.getpid(), signal.SIGUSR1)

            before = signal.signal(signal.SIGUSR1, handle)
            try:
                director = in_thread(direct)
                with client.lock("first", timeout=PATIENCE):
                    pass
                director.join(PATIENCE)
            finally:
                signal.signal(signal.SIGUSR1, before)
        assert told[0] < SOON

    def test_is_ended_by_a_signal_at_once(self, url: str) -> None:
        """Its wait is no work of ours that a handler should let come to its end."""
        with interlock.connect(url) as other, other.lock("taken"):
            process = subprocess.Popen(
                [sys.executable, "-c", WAITS_ALONE, url], stdout=subprocess.PIPE, env=ENVIRONMENT
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"reads\n"
            with at_most(SOON):
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == -signal.SIGTERM
                process.stdout.close()
            assert not other.inspect("taken").waiters

    def test_leaves_the_reading_in_order_wherever_ctrl_c_strikes(self, url: str) -> None:
        """The next who waits hears of its grant."""
        ghosts = 0  # of strikes where it leaves: forgotten with the subscription
        with interlock.connect(url) as client, interlock.connect(url) as other:
            subscribed(client, other)
            with other.lock("busy"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine struck before its first step
                for strike in strikes(lambda: client.lock("busy").acquire(timeout=0.02), module.__file__):
                    assert handed_over(client, other, "x") < SOON, strike.where
                    assert not other.inspect("busy").waiters, strike.where
                    ghosts += strike.where.endswith("leave")
                    assert len(reading(client)._waiting) <= ghosts, strike.where


def test_a_request_to_a_server_that_takes_nothing_keeps_nobody_for_long(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent under the guard that everybody needs who begins to wait, or stops."""
    monkeypatch.setattr(listener, "QUIET_S", 0.2)
    with interlock.connect(url) as client, interlock.connect(url) as other:
        subscribed(client, other)
        waiters, waiter = cast(Any, client._core.store)._listener, threading.Event()
        with server.frozen():
            sender = in_thread(lambda: waiters.subscribed(b"more than fits" * 4_000_000, waiter))
            sender.join(PATIENCE)
            assert not sender.is_alive()
            waiters.forget(waiter, b"")


def test_without_files_for_bells_the_listeners_thread_reads_alone(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connected a thousand times a second instead, for as long as somebody waited."""

    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", full)
    with (
        interlock.connect(url) as client,
        interlock.connect(url) as other,
        redis.Redis(port=server.port) as admin,
    ):
        before = admin.info("stats")["total_connections_received"]
        with other.lock("busy"):
            assert client.lock("busy").acquire(timeout=0.5) is None
        assert handed_over(client, other, "x") < SOON
        assert reading(client) is None
        assert admin.info("stats")["total_connections_received"] - before < 10
