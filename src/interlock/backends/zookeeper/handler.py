"""What kazoo asks of its environment: threads, sockets, events. One thread for each client, instead of kazoo's three.

kazoo's own handler hands replies and watch events to two worker threads, because it does not know what a callback does. Ours set
a signal and return, so they are called where the reply is read.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from interlock import native
from interlock.backends.zookeeper.library import utils


class TimedOut(Exception):
    """A socket was not ready in time."""


class Handler:
    """kazoo's `IHandler`, as far as its connection uses it."""

    name = "interlock"
    timeout_exception = TimedOut
    sleep_func = staticmethod(time.sleep)
    queue_impl = queue.Queue
    queue_empty = queue.Empty

    def __init__(
        self,
        connect_timeout: float,
        run: Callable[[Callable[[], None]], None],
        report: Callable[[Exception], None],
    ) -> None:
        self._connect_timeout = connect_timeout  # for one server: those after it must get their turn
        self._run_loop = run
        self._report = report  # told why a server could not be reached, which kazoo only logs
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def spawn(self, loop: Callable[[], None]) -> Any:
        thread = native.Thread(target=self._run_loop, args=(loop,), name="interlock-zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(self, *args: Any, **options: Any) -> Any:
        return utils.selector_select(*args, **options)

    def create_connection(self, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        limit = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
        try:
            return utils.create_tcp_connection(socket, *args, timeout=limit, **options)
        except Exception as error:
            self._report(error)
            raise

    def create_socket_pair(self) -> Any:
        return utils.create_socket_pair(socket)

    def event_object(self) -> threading.Event:
        return threading.Event()

    def lock_object(self) -> Any:
        return threading.Lock()

    def rlock_object(self) -> Any:
        return threading.RLock()
