"""The blocking transport: one connection for each request under way, kept for the next request.

The socket's own timeout enforces deadlines: it keeps counting when a signal arrives, works through TLS, and
lets other greenlets run where gevent or eventlet provides the sockets. A connection on which anything went
wrong is reset: a late reply must not answer another request, and a request must not arrive after its claim
was taken back.

The pool is one of `kit.slots`; a request that finds an idle connection takes it without any call there.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, SupportsIndex

from interlock._support import native
from interlock.backends.kit.connect_pace import left_after
from interlock.backends.kit.slots import Slots
from interlock.backends.redis.address import Route, round_trip
from interlock.backends.redis.errors import merged_error, protocol_error, timeout_error, unreachable
from interlock.backends.redis.transport.keeper_connection import KeeperConnection
from interlock.backends.redis.wire.resp import MALFORMED, check_size, reader
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable, Unreached

MAX_CONNECTIONS = 16  # at the same time; more threads than this wait for each other
IDLE_CLOSE_S = 1.0  # after which a connection that nobody needed is closed
UNCHECKED_S = 0.5  # of idleness after which a connection is checked before it is used
READ_BYTES = 16384
SHORT_READ_BYTES = 256  # suffice for most replies; a larger buffer costs more than it saves
MAX_ADDED_ROUND_TRIP_S = 2.0  # that a distant server may add to a request's timeout
DISCARD_UNSENT = struct.pack("ii", 1, 0)  # SO_LINGER: close discards unsent data


class Broken(StoreUnavailable):
    """The connection ended before the reply: nobody knows whether the request was applied."""


class BlockingConnection:
    """One connection to a server, used by one thread at a time."""

    __slots__ = (
        *("__weakref__", "_connection", "_label", "_reader", "_sock", "_timeout", "_tls", "_waited"),
        *("bound", "least", "used"),
    )

    def __init__(self, label: str) -> None:
        self._label = label
        self._connection: Any = None
        self._sock: Any = None
        self._reader = reader()
        self._timeout = -1.0
        self._waited = 0  # bytes of a message that is incomplete
        self._tls: Any = None  # a lock if one thread reads while others send: TLS cannot do both at once
        self.bound = False  # whether only the thread that made it can use it
        # The shortest timeout of a request in seconds: a distant server cannot answer sooner.
        self.least = 0.0
        self.used = 0.0

    @property
    def made(self) -> bool:
        return self._sock is not None

    def connect(self, address: Route, timeout: float) -> None:
        # Kept alive: the library closes a connection that is garbage-collected.
        connection = self._connection = address.connect(timeout)
        self._sock = connection._sock
        self.least = min(MAX_ADDED_ROUND_TRIP_S, 2 * round_trip(connection))
        self.bound = bool(native.green("socket"))

    def unbind(self) -> None:
        """Turn a green socket into a plain one, which any thread may use."""
        if self.bound:
            try:
                self._sock = native.PlainSocket(self._sock)
            except (AttributeError, TypeError):
                return  # an unknown library: only its own thread can use the socket
            self._connection._sock = None
            self.bound = False

    def ask(self, request: bytes, timeout: float, replies: int, now: float) -> Any:
        """The reply to a request, or a list of replies if it holds several commands."""
        sock = self._sock
        if timeout < self.least:
            timeout = self.least
        if timeout != self._timeout:
            self._set_timeout(timeout)
        try:
            sock.sendall(request)
            data = sock.recv(SHORT_READ_BYTES)
            if replies == 1 and data[:1] == b":" and data[-2:] == b"\r\n":  # an integer, as most replies are
                self.used = now
                return int(data[1:-2])
            return self._read(data, now + timeout, replies)
        except (BlockingIOError, TimeoutError):
            raise timeout_error(self._label, timeout) from None
        except (OSError, EOFError) as error:
            raise Broken(str(unreachable(self._label, error))) from None
        except MALFORMED as error:
            raise protocol_error(self._label, error) from None

    def _read(self, data: bytes, until: float, replies: int) -> Any:
        got: list[Any] = []
        size = 0
        while True:
            if not data:
                raise EOFError("the server closed the connection")
            self._reader.feed(data)
            while len(got) < replies and (reply := self._reader.gets()) is not False:
                got.append(reply)
            self.used = now = time.monotonic()
            if len(got) == replies:
                return got[0] if replies == 1 else got
            if now >= until:
                raise TimeoutError
            size += len(data)
            check_size(size)
            self._set_timeout(until - now)
            data = self._sock.recv(READ_BYTES)

    def _set_timeout(self, timeout: float) -> None:
        self._timeout = timeout
        self._sock.settimeout(max(0.001, timeout))

    def alive(self) -> bool:
        """Whether the server has not closed it and has sent nothing unasked."""
        self._timeout = -1.0
        try:
            self._sock.settimeout(0.0)
            self._sock.recv(1)
        except BlockingIOError:
            return True
        except OSError as error:  # TLS may have read a record of its own
            return type(error).__name__ == "SSLWantReadError"
        return False

    # ---- as a subscription -----------------------------------------------------

    def share(self) -> None:
        """Let one thread read while others send; from now on, sending never blocks.

        Green sockets still block, since only one greenlet runs at a time.
        """
        if native.green("socket"):
            return
        self._sock.settimeout(0.0)
        if hasattr(self._sock, "pending"):
            self._tls = threading.Lock()

    def send(self, request: bytes) -> None:
        if self._tls is None:
            self._sock.sendall(request)
        else:
            with self._tls:
                self._sock.sendall(request)

    def receive(self, timeout: float) -> list[Any]:
        """Wait for a reply and return all that have arrived; an empty list if none came in time."""
        if native.green("socket"):
            self._set_timeout(timeout)
        elif timeout and not _readable(self._sock, timeout):
            return []
        got: list[Any] = []
        while data := self._arrived():
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                got.append(reply)
            self._waited = 0 if got else self._waited + len(data)
            check_size(self._waited)
            if self._tls is None:
                break
        return got

    def _arrived(self) -> bytes:
        """Some of the data that has arrived, or nothing.

        Data that TLS has decrypted already is invisible to poll().
        """
        try:
            if self._tls is None:
                data: bytes = self._sock.recv(READ_BYTES)
            else:
                with self._tls:
                    data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, TimeoutError):
            return b""
        except OSError as error:
            if type(error).__name__ == "SSLWantReadError":
                return b""
            raise
        if not data:
            raise EOFError("the server closed the connection")
        return data

    def fileno(self) -> int:
        return int(self._sock.fileno())

    @property
    def polls(self) -> bool:
        """Whether any thread can poll the socket for data."""
        return hasattr(select, "poll") and not native.green("socket")

    def hang_up(self) -> None:
        """End a read in which another thread is blocked."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already

    # ---- the end -----------------------------------------------------------------

    def reset(self) -> None:
        """Close it, and discard data that is still under way."""
        if self._sock is not None:
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DISCARD_UNSENT)
            except OSError:
                pass  # it is gone already
        self.close()

    def close(self) -> None:
        if self._sock is not None:
            try:
                self._sock.close()
            except OSError:
                pass
            self._connection._sock = None


def _readable(sock: Any, timeout: float) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], timeout)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def connected(address: Route, timeout: float) -> BlockingConnection:
    """A new connection outside of any pool."""
    connection = BlockingConnection(address.label)
    connection.connect(address, timeout)
    return connection


class Pool:
    """A bounded pool of connections to one server, the last used first; idle ones are closed.

    With a `keeper_connection`, the keeper's own connection is made together with the first one, and no
    request is sent before both exist. A transport `for_keeper` is that connection: there, connecting counts
    against the request's own timeout.
    """

    def __init__(
        self, address: Route, *, keeper_connection: KeeperConnection | None = None, for_keeper: bool = False
    ) -> None:
        self.address = address
        self._keeper_connection = keeper_connection
        self._for_keeper = for_keeper
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's sockets. They are closed here without telling the server."""
        self._idle: _Idle = _ByThread() if native.green("socket") else []
        self._slots: Slots[BlockingConnection] = Slots(
            MAX_CONNECTIONS, lambda: BlockingConnection(self.address.label), self._idle
        )
        self._slots.closed = self._closed
        self._waiting = self._slots.waiting
        self._companion: _Companion | None = None
        self._mutex = self._slots.mutex
        self.inside: Callable[[], bool] = self._mutex._is_owned  # itself: every release asks
        """Whether the calling thread is in the middle of a change here."""

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        """The reply. `again` says that repeating the request is harmless.

        Then a kept connection that proves dead is replaced once, and the time to connect is that of the
        route's pace.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._ask_slowly(request, timeout, replies, again)
        now = time.monotonic()
        if now - connection.used > UNCHECKED_S and not connection.alive():
            self._drop(connection)
            return await self.ask(request, timeout, replies, again)
        try:
            reply = connection.ask(request, timeout, replies, now)
        except Broken as lost:
            self._drop(connection)
            self._drain()  # the other idle connections are as old, and probably dead too
            if not again:
                raise
            try:
                left = max(0.001, now + timeout - time.monotonic())
                return self._ask_slowly(request, left, replies, again)
            except Unreached as error:
                raise merged_error(lost, error) from None
        except BaseException:  # an interruption, too: a late reply must not answer another request
            self._drop(connection, reset=True)
            raise
        idle = self._idle
        idle.append(connection)
        if self._waiting or len(idle) > 1 or self._closed:
            self._tidy(connection)
        return reply

    def _ask_slowly(self, request: bytes, timeout: float, replies: int, again: bool) -> Any:
        """The same on a new connection, or on one that another thread gives back."""
        began, pace = time.monotonic(), self.address.pace
        connecting_is_extra = again and not self._for_keeper
        counts, connecting = pace.counts(timeout), pace.within(timeout) if connecting_is_extra else 0.0
        connection, new = self._next(began + timeout, connecting)
        try:
            now = time.monotonic()
            left = began + timeout - now
            if new and connecting_is_extra:
                left = left_after(timeout, now - began) if counts else timeout
            reply = connection.ask(request, max(0.001, left), replies, now)
        except BaseException:
            self._drop(connection, reset=True)
            raise
        self._idle.append(connection)
        self._tidy(connection)
        return reply

    async def warm(self, route: Route, timeout: float) -> None:
        if self._idle or len(self._slots):
            return
        connection, _ = self._next(time.monotonic() + timeout, 0.0)
        self._idle.append(connection)
        self._tidy(connection)

    # ---- slots --------------------------------------------------------------------

    def _next(self, until: float, connecting: float) -> tuple[BlockingConnection, bool]:
        """A connection, and whether it is new.

        If one must be made, there are `connecting` seconds for that, or the time until `until`.
        """

        def left() -> float:
            # While others connect, a request that may take so long for that waits for them.
            also = connecting if any(not connection.made for connection in self._slots) else 0.0
            return until + also - time.monotonic()

        found = self._slots.take(left)
        if found is None:
            if self._closed:
                raise ClientClosed("this client was closed")
            raise StoreUnavailable(
                f"{self.address.label}: all {MAX_CONNECTIONS} connections are waiting for it"
            )
        connection, new = found
        if not new:
            return found
        began = time.monotonic()
        try:
            self._connect(
                connection, connecting or max(0.001, min(self.address.connect_timeout, until - began))
            )
            if not self._for_keeper:
                self.address.pace.reached(time.monotonic() - began)
        except StoreUnavailable as error:
            self._drop(connection)
            raise Unreached(str(error)) from None
        except BaseException:
            self._drop(connection)
            raise
        return found

    def _connect(self, connection: BlockingConnection, timeout: float) -> None:
        companion = self._accompanied(timeout)
        until = time.monotonic() + timeout
        connection.connect(self.address, timeout)
        # The keeper's thread is no greenlet, and another thread may have connected for it.
        if self._for_keeper:
            connection.unbind()
        if companion is not None:
            companion.result(max(0.001, until - time.monotonic()), self.address.label)

    def _accompanied(self, timeout: float) -> _Companion | None:
        """The keeper's connection while it is being made; None once it is there."""
        with self._mutex:
            companion, keeper_connection = self._companion, self._keeper_connection
            if (
                keeper_connection is None
                or not keeper_connection.wanted
                or (companion is not None and companion.made)
            ):
                return None
            if companion is None or companion.failed:
                companion = self._companion = _Companion(keeper_connection, self.address, timeout)
            return companion

    def _tidy(self, connection: BlockingConnection) -> None:
        """A connection was given back: hand it over to a waiting thread, or close one that nobody needs."""
        idle = self._idle
        if self._closed:
            self._drain()
        elif self._waiting:
            self._slots.hand_over()
        elif len(idle) > 1:
            try:
                if connection.used - idle[0].used > IDLE_CLOSE_S:
                    self._drop(idle.pop(0))
            except IndexError:
                pass  # other threads have taken all of them

    def _drop(self, connection: BlockingConnection, *, reset: bool = False) -> None:
        if reset:
            connection.reset()
        else:
            connection.close()
        self._slots.remove(connection)

    def _drain(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:
                return

    async def close(self) -> None:
        self._closed = True
        self._slots.close()
        self._drain()


class _Idle(Protocol):
    """What a pool needs from the list of its idle connections."""

    def append(self, connection: BlockingConnection, /) -> None: ...
    def pop(self, at: SupportsIndex = -1, /) -> BlockingConnection: ...
    def __getitem__(self, at: SupportsIndex, /) -> BlockingConnection: ...
    def __len__(self) -> int: ...


class _ByThread:
    """Idle connections with sockets of gevent or eventlet; most can only be used by the thread that made
    them.
    """

    def __init__(self) -> None:
        self._lists: dict[int, list[BlockingConnection]] = {}
        self._unbound: list[BlockingConnection] = []
        self._ident: Callable[[], int] = native.original("get_ident")

    @property
    def _mine(self) -> list[BlockingConnection]:
        return self._lists.get(self._ident()) or self._unbound

    def append(self, connection: BlockingConnection, /) -> None:
        if not connection.bound:
            self._unbound.append(connection)
            return
        ident = self._ident()
        if ident not in self._lists:
            self._lists[ident] = []
            native.at_thread_end(lambda: self._close(ident))
        self._lists[ident].append(connection)

    def _close(self, ident: int) -> None:
        for connection in self._lists.pop(ident, ()):
            connection.close()

    def pop(self, at: SupportsIndex = -1, /) -> BlockingConnection:
        return self._mine.pop(at)

    def __getitem__(self, at: SupportsIndex, /) -> BlockingConnection:
        return self._mine[at]

    def __len__(self) -> int:
        return len(self._mine)


class _Companion:
    """Makes the keeper's connection at the same time as ours, on a thread of its own."""

    def __init__(self, keeper_connection: KeeperConnection, route: Route, timeout: float) -> None:
        self._keeper_connection, self._route, self._timeout = keeper_connection, route, timeout
        self._error: BaseException | None = None
        self.made = False
        self._thread = native.Thread(target=self._run, name="interlock-connect", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be started: make one after the other
            self._run()

    @property
    def failed(self) -> bool:
        return self._error is not None

    def _run(self) -> None:
        try:
            self._keeper_connection.warm(self._route, self._timeout)
            self.made = True
        except BaseException as error:
            self._error = error

    def result(self, timeout: float, label: str) -> None:
        """Return once it is made, or raise the error that prevented it."""
        if not self.made and self._error is None:
            self._thread.join(timeout)
        if isinstance(self._error, InterlockError):
            raise type(self._error)(str(self._error))  # a new instance, since several threads raise it
        if self._error is not None:
            raise self._error
        if not self.made:
            raise timeout_error(label, timeout)
