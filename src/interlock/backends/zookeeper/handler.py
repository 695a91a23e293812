"""The environment that kazoo asks for: threads, sockets, events. One thread for each client, instead of
kazoo's three.

kazoo's own handler hands replies and watch events to two worker threads, because it does not know what a
callback does. Ours set a signal and return, so they are called where the reply is read.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial
from ssl import CERT_NONE, CERT_REQUIRED, SSLContext, create_default_context
from typing import Any

from interlock._support import native
from interlock.backends.zookeeper import wire
from interlock.backends.zookeeper.wire import Waker, Wire


class TimedOut(Exception):
    """A socket was not ready in time."""


class Event:
    """A `threading.Event` for callers that never wait for it: kazoo does so only where it is set already,
    before it starts.
    """

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set


class Handler:
    """kazoo's `IHandler`, as far as its connection uses it."""

    name = "interlock"
    timeout_exception = TimedOut
    queue_impl = queue.Queue
    queue_empty = queue.Empty

    def __init__(
        self,
        connect_timeout: float,
        run: Callable[[Callable[[], None]], None],
        report: Callable[[Exception], None],
    ) -> None:
        self.connect_timeout = connect_timeout  # for one server: those after it must get their turn
        self._run_loop = run
        self._report = report  # told why a server could not be reached, which kazoo only logs
        self.running = False
        self.sleep_func = wire.original("time", "sleep")
        self.select = partial(wire.ready, poller=wire.original("select", "poll", None))
        self.client: Any = None  # whose handler this is

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def spawn(self, loop: Callable[[], None]) -> None:
        """Run kazoo's loop on a thread of the system: beside greenlets that compute, the session must be
        kept.
        """
        if native.green():
            native.run(lambda: self._run_loop(loop))
        else:
            native.Thread(
                target=self._run_loop, args=(loop,), name="interlock-zookeeper", daemon=True
            ).start()

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, use_ssl: bool = False, **tls: Any
    ) -> Wire:
        """A connection to one server. kazoo's own function leaves the socket open if the handshake of TLS
        fails.
        """
        try:
            made = wire.connection(address, min(timeout, self.connect_timeout))
            try:
                return Wire(_secured(**tls).wrap_socket(made, server_hostname=hostname) if use_ssl else made)
            except BaseException:
                made.close()
                raise
        except Exception as error:
            self._report(error)
            raise

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        waker = Waker(lambda: self.client._queue)
        return waker, waker

    def event_object(self) -> Event:
        return Event()

    def lock_object(self) -> Any:
        return native.mutex()

    def rlock_object(self) -> Any:
        return native.mutex()


def _secured(
    ca: str | None,
    certfile: str | None,
    keyfile: str | None,
    keyfile_password: str | None,
    verify_certs: bool,
    check_hostname: bool,
) -> SSLContext:
    """The TLS context of a connection.

    The files are read for each connection, because certificates are replaced now and then.
    """
    made = create_default_context()
    if ca:
        made.load_verify_locations(ca)
    made.check_hostname = check_hostname
    made.verify_mode = CERT_REQUIRED if verify_certs else CERT_NONE
    if certfile and keyfile:
        made.load_cert_chain(certfile, keyfile, keyfile_password)
    return made
