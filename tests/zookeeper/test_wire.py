"""Sockets of kazoo's loop: nothing that was asked for is slept through, and nothing that was read is left lying."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections import deque
from typing import Any

import pytest

from interlock.backends.zookeeper.wire import POLL, Waker, Wire, ready
from tests.patience import PATIENCE, until


class Meanwhile:
    """The near end of a waker; somebody asks for something before or after the loop reads from it."""

    def __init__(self, waker: Waker, ask: Any, before: bool) -> None:
        self._near, self._ask, self._before = waker._near, ask, before

    def recv(self, most: int) -> bytes:
        if self._before:
            self._ask()
        read: bytes = self._near.recv(most)
        if not self._before:
            self._ask()
        return read


@pytest.mark.parametrize("before", [True, False])
def test_a_request_that_comes_while_the_loop_wakes_up_is_seen_and_so_is_the_next(before: bool) -> None:
    queue: deque[str] = deque()
    waker: Any = Waker(lambda: queue)

    def ask() -> None:
        queue.append("a request")
        waker.send(b"\0")

    waker.asleep = True  # otherwise nobody need wake it
    ask()
    queue.clear()  # as if it had been sent together with an earlier one
    near, waker._near = waker._near, Meanwhile(waker, ask, before)
    assert ready([waker], [], [], 10.0)[0] == [waker]
    assert len(queue) == 1
    queue.clear()
    waker._near = near
    assert ready([waker], [], [], 0.0)[0] in (
        [],
        [waker],
    )  # a byte for what was sent meanwhile costs one look
    ask()
    assert ready([waker], [], [], 0.0)[0] == [waker]
    queue.clear()
    ready([waker], [], [], 0.0)
    waker.asleep = True  # as it is when the loop looks at the queue before it sleeps
    ask()
    assert select_alone(waker), "nobody woke the loop"
    waker.close()


def select_alone(waker: Waker) -> bool:
    """Whether a loop that sleeps would be woken, whatever it knows of the queue."""
    poll = select.poll()
    poll.register(waker.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_a_loop_that_sleeps_is_woken_and_one_that_is_awake_is_not() -> None:
    queue: deque[str] = deque()
    waker = Waker(lambda: queue)
    assert waker.send(b"\0") == 1
    assert not select_alone(waker), "it was not asleep"
    woken: list[Any] = []
    loop = threading.Thread(target=lambda: woken.extend(ready([waker], [], [], PATIENCE)[0]), daemon=True)
    loop.start()
    until(lambda: waker.asleep)
    queue.append("a request")
    waker.send(b"\0")
    loop.join(PATIENCE / 2)
    assert woken == [waker]
    assert not waker.asleep
    waker.close()


def test_being_woken_for_what_was_sent_already_is_not_the_end_of_a_timeout() -> None:
    """When nothing is ready, kazoo takes the server for dead if a heartbeat was not answered yet."""
    queue: deque[str] = deque()
    waker = Waker(lambda: queue)
    waker.asleep = True
    waker.send(b"\0")
    began = time.monotonic()
    assert ready([waker], [], [], 0.2)[0] == []
    assert time.monotonic() - began >= 0.2
    waker.close()


def test_thousands_of_requests_do_not_fill_what_wakes_the_loop() -> None:
    queue: deque[int] = deque()
    waker = Waker(lambda: queue)
    for number in range(10_000):
        queue.append(number)
        assert waker.send(b"\0") == 1
    taken = 0
    while ready([waker], [], [], 0.0)[0]:
        queue.popleft()
        waker.recv(1)
        taken += 1
    assert taken == 10_000
    waker.close()


@pytest.mark.parametrize("poller", [POLL, None], ids=["poll", "select"])
def test_systems_without_poll_wait_as_well(poller: Any) -> None:
    near, far = socket.socketpair()
    if poller is None and near.fileno() >= 1000:
        near.close()
        far.close()
        pytest.skip("select() takes descriptors below 1024 only, and the tests before have left more open")
    wire: Any = Wire(near)
    waker = Waker(lambda: ())
    assert ready([wire, waker], [], [], 0.05, poller)[0] == []
    far.sendall(b"x")
    assert ready([wire, waker], [], [], 10.0, poller)[0] == [wire]
    wire.full = True
    assert ready([], [wire], [], 10.0, poller)[1] == [wire]
    for end in (wire, far, waker):
        end.close()


def test_what_was_read_with_an_earlier_reply_counts_as_ready() -> None:
    near, far = socket.socketpair()
    wire: Any = Wire(near)
    wire.setblocking(False)
    far.sendall(b"\0\0\0\4abcd")
    assert ready([wire], [], [], 10.0)[0] == [wire]
    assert wire.recv(4) == b"\0\0\0\4"
    assert ready([wire], [], [], 0.0)[0] == [wire]
    assert wire.recv(100) == b"abcd"
    assert ready([wire], [], [], 0.0)[0] == []
    far.close()
    assert ready([wire], [], [], 10.0)[0] == [wire]
    assert wire.recv(4) == b"", "its end is told"
    wire.close()
    with pytest.raises(OSError, match="closed"):
        ready([wire], [], [], 0.0)


def test_a_write_that_does_not_fit_waits_until_it_does() -> None:
    near, far = socket.socketpair()
    wire: Any = Wire(near)
    wire.setblocking(False)
    with pytest.raises(ssl.SSLWantWriteError):
        while True:
            assert ready([], [wire], [], 0.0)[1] == [wire]
            wire.send(b"x" * 100_000)
    assert ready([], [wire], [], 0.0)[1] == []
    while ready([], [wire], [], 0.0)[1] == []:
        far.recv(1_000_000)
    assert wire.send(b"x") == 1
    wire.close()
    far.close()
