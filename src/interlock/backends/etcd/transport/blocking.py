"""The blocking transport: one connection for all threads of a client. Whoever waits for an answer reads for
everybody.

There is no listener thread. A thread that waits takes the role of the reader if nobody has it, hands answers
to the threads that they are for, and passes the role on when it has its own. The role, and the right to
connect, are tickets held by weak reference: however a thread ends that has one, even by an exception that
another thread throws into it between two lines, the ticket is free once its frame is gone. A connection that
is interrupted in the midst of a change is broken and replaced; the other threads ask again.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from interlock._support import native, standard_streams
from interlock._support.waiting import only_waits
from interlock._support.wording import duration
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.errors import (
    Broken,
    NotProcessed,
    not_etcd,
    not_sent,
    reason,
    timeout_error,
    unreachable,
)
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.connection import PING_AFTER_S, UNSENT_PART, MemberConnection
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.grpc import Call
from interlock.backends.etcd.wire.http2 import ProtocolError, Stream
from interlock.backends.etcd.wire.messages import Method
from interlock.backends.etcd.wire.protobuf import MalformedMessage
from interlock.backends.etcd.wire.watching import Watched, WatchGroup
from interlock.backends.kit import resolver
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable, Unreached

UNCHECKED_S = 0.5  # seconds of silence after which a connection is checked before it is used
# Seconds that answers to pings wait for a request, and what the system did not take, to be sent.
DELAYED_SEND_S = 0.02
# Seconds after which a thread that waits looks whether the reader is gone without a word.
READER_CHECK_S = 0.25
READ_BYTES = 65536
DISCARD_UNSENT = struct.pack("ii", 1, 0)  # SO_LINGER: close discards unsent data


class Ticket:
    """The proof that its thread has a role; it is gone with the thread's frame."""

    __slots__ = ("__weakref__",)


class Role:
    """Something that one thread at a time does."""

    def __init__(self) -> None:
        self._mutex = native.mutex()
        self._ticket: weakref.ref[Ticket] | None = None

    def take(self) -> Ticket | None:
        """The ticket, or None if another thread has it."""
        with self._mutex:
            if self._ticket is not None and self._ticket() is not None:
                return None
            ticket = Ticket()
            self._ticket = weakref.ref(ticket)
            return ticket

    def give_back(self, ticket: Ticket) -> None:
        with self._mutex:
            if self._ticket is not None and self._ticket() is ticket:
                self._ticket = None

    @property
    def free(self) -> bool:
        ticket = self._ticket
        return ticket is None or ticket() is None


class Gate:
    """A thread waits here until it is called; a call before the wait is not lost."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # as gevent has it where it has replaced it
        self._lock.acquire()

    def open(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is open already

    def wait(self, timeout: float) -> None:
        self._lock.acquire(timeout=max(0.0, timeout))

    @only_waits
    def wait_for_change(self, timeout: float) -> None:
        """The same, for a thread that expects no answer to a request of its own."""
        self._lock.acquire(timeout=max(0.0, timeout))


class SharedSocket:
    """A socket that never blocks; waiting for data is apart, so one thread can wait while others send."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        sock.settimeout(0.0)
        self._poll: Any = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(sock, select.POLLIN)
        self._tls = hasattr(sock, "pending")

    def readable(self, timeout: float) -> bool:
        if self._tls and self._sock.pending():
            return True  # decrypted already, so the system does not know of it
        if self._poll is None:
            return bool(select.select([self._sock], [], [], timeout)[0])
        return bool(self._poll.poll(timeout * 1000))

    @only_waits
    def await_readable(self, timeout: float) -> None:
        """Poll for a thread that expects no answer to a request of its own, but waits for a change."""
        if self._poll is not None and not (self._tls and self._sock.pending()):
            self._poll.poll(timeout * 1000)

    def receive(self, timeout: float) -> bytes | None:
        """The bytes that have arrived; None if none have, empty at the end. Never waits."""
        try:
            data: bytes = self._sock.recv(READ_BYTES)
            return data
        except BlockingIOError:
            return None
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return None
            raise

    def send(self, data: bytes) -> int:
        """How many bytes the system has taken."""
        try:
            return int(self._sock.send(data))
        except BlockingIOError:
            return 0
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return 0
            raise

    def hang_up(self) -> None:
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DISCARD_UNSENT)
            self._sock.shutdown(socket.SHUT_RDWR)  # ends a poll in which another thread waits
        except OSError:
            pass  # it is gone already

    def close(self) -> None:
        try:
            self._sock.close()
        except OSError:
            pass


class TimedSocket(SharedSocket):
    """A socket of greenlets, or one that only the keeper's thread uses: it waits in the call itself, by
    its timeout.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def readable(self, timeout: float) -> bool:
        return True

    def await_readable(self, timeout: float) -> None:
        """Return at once: `receive` waits."""

    def receive(self, timeout: float) -> bytes | None:
        self._sock.settimeout(max(0.001, timeout))
        try:
            data: bytes = self._sock.recv(READ_BYTES)
            return data
        except (BlockingIOError, TimeoutError):
            return None

    def send(self, data: bytes) -> int:
        self._sock.settimeout(5.0)
        self._sock.sendall(data)
        return len(data)


def _nobody() -> None:
    """Wake nobody: the thread reads by itself, or looks before it waits."""


class BlockingConnection(MemberConnection):
    """A connection for threads."""

    def __init__(
        self, endpoint: Endpoint, credentials: Credentials, sock: SharedSocket, *, tls: bool
    ) -> None:
        super().__init__(endpoint, credentials, tls=tls)
        self._sock = sock
        self._mutex = native.mutex()
        self._reading = Role()
        self._waiting: dict[Gate, None] = {}
        self._unsent = b""
        self._pong_by = math.inf  # when answers to pings leave without a request
        self._why = ""
        self.heard = time.monotonic()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A few lines that change the connection's state. If they are interrupted, nobody can trust it any
        more.
        """
        with self._mutex:
            try:
                yield
            except BaseException as error:
                self._interrupted(error)
                raise

    def _interrupted(self, error: BaseException) -> None:
        """The connection was changed by halves.

        The two busiest changes call this themselves, without `_changing`.
        """
        if not isinstance(error, InterlockError):
            self._break(str(error) or type(error).__name__)
            self._close_if_over()  # not left to the collector, where an exception from outside would be lost

    def _break(self, why: str) -> None:
        if not self.ended:
            self.ended, self._why = True, why
            self._sock.hang_up()
            self._core.fail(why)
            for gate in list(self._waiting):
                gate.open()

    def _flush(self) -> None:
        """Send what is to be sent, as far as the system takes it. Under the guard."""
        self._unsent += self._core.take()
        self._pong_by = math.inf
        while self._unsent and (sent := self._sock.send(self._unsent)):
            self._unsent = self._unsent[sent:]

    # ---- calls --------------------------------------------------------------------------

    async def call(self, method: Method, body: bytes, timeout: float, *, low_priority: bool = False) -> bytes:
        now = time.monotonic()
        until, call = now + timeout, Call()
        stream: Stream | None = None
        try:
            if now - self.heard > UNCHECKED_S:
                self._read_arrived()
            with self._mutex:
                try:
                    if self.ended or self._core.draining:
                        self._check_usable()
                    stream = self._request(method, body, call, low_priority)
                    self._flush()
                except BaseException as error:
                    self._interrupted(error)
                    raise
            if not stream.id:
                self._await_sent(stream, call, now + timeout * UNSENT_PART)
            self._read_alone(call, until)
            if call.status is None:
                self._await(call, lambda: call.status is not None, until)
        except TimeoutError:
            self._give_up(stream)
            sent = stream is not None and stream.id
            raise timeout_error(self.label, timeout) if sent else not_sent(self.label, timeout) from None
        except OSError as error:
            raise self._lost(error) from None
        except BaseException:
            self._give_up(stream)
            raise
        if self.ended and call.status is not None and call.status.code == 14 and call.status.processed:
            raise Broken(f"{self.label}: {self._why or call.status.text}")
        return self._answer(call)

    def _await_sent(self, stream: Stream, call: Call, until: float) -> None:
        self._await(call, lambda: stream.id > 0 or call.status is not None, until)

    def _check_usable(self) -> None:
        if not self.usable:
            raise NotProcessed(f"{self.label}: {self._why or 'the server closes the connection'}")

    def _lost(self, error: OSError) -> StoreUnavailable:
        if isinstance(error, InterlockError):
            return error  # type: ignore[return-value]
        return Broken(f"{self.label}: {error}")

    def _give_up(self, stream: Stream | None) -> None:
        """Tell the server that nobody waits for this call any more."""
        if stream is not None and not self.ended:
            try:
                with self._changing():
                    self._core.reset(stream)
                    self._flush()
            except OSError:
                pass

    def post(self, method: Method, body: bytes, done: Callable[[], object] | None = None) -> Call:
        call = self._posted(done)
        try:
            with self._changing():
                if self.usable:
                    self._request(method, body, call, low_priority=True)
                    self._flush()
        except OSError:
            pass
        return call

    # ---- watches ------------------------------------------------------------------------

    async def open_watches(self, watched: Sequence[Watched], timeout: float) -> WatchGroup:
        group = WatchGroup(_nobody)
        try:
            if time.monotonic() - self.heard > UNCHECKED_S:
                self._read_arrived()
            with self._changing():
                self._check_usable()
                self._watch(group, watched)
                self._flush()
            self._await(group, lambda: group.ready or bool(group.ended), time.monotonic() + timeout)
            with self._changing():
                self._check_opened(group)
        except TimeoutError:
            self.close_watches(group)
            raise timeout_error(self.label, timeout) from None
        except OSError as error:
            raise self._lost(error) from None
        except BaseException:
            self.close_watches(group)
            raise
        return group

    async def changed(self, group: WatchGroup, timeout: float) -> bool:
        try:
            until = time.monotonic() + timeout
            ready = lambda: group.fired or bool(group.ended) or self._core.draining  # noqa: E731
            self._await(group, ready, until, Gate.wait_for_change)
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            group.fired = False
        return True

    def close_watches(self, group: WatchGroup) -> None:
        if self.ended:
            return
        try:
            with self._changing():
                self._unwatch(
                    group
                )  # it leaves with the next request: a waiter that was let in has better things to do
        except OSError:
            pass

    # ---- reading ------------------------------------------------------------------------

    def _read_arrived(self) -> None:
        """Read the bytes that have arrived since the last read: the server may have closed the connection, or
        sent a ping.
        """
        ticket = self._reading.take()
        if ticket is not None:
            try:
                now = self._listened = time.monotonic()
                self._pump(now, 0.0)
            finally:
                self._reading.give_back(ticket)
                self._close_if_over()

    def _read_alone(self, call: Call, until: float) -> None:
        """Read for everybody until a call is over or its time is up; not at all if another thread reads.

        The usual way of a call.
        """
        ticket = self._reading.take()
        if ticket is None:
            return
        try:
            while call.status is None and not self.ended and (left := until - (now := time.monotonic())) > 0:
                self._pump(now, left)
        finally:
            self._reading.give_back(ticket)
            del ticket
            if self._waiting:
                self._call_next()
            if self.ended:
                self._close_if_over()

    def _await(
        self,
        waited: Call | WatchGroup,
        ready: Callable[[], bool],
        until: float,
        wait: Callable[[Gate, float], None] = Gate.wait,
    ) -> None:
        """Return when it is ready; `TimeoutError` after `until`.

        Reads for everybody unless another thread does.
        """
        gate: Gate | None = None
        try:
            while not ready():
                left = until - time.monotonic()
                if self.ended:
                    raise Broken(f"{self.label}: {self._why}")
                if left <= 0:
                    raise TimeoutError
                ticket = self._reading.take()
                if ticket is None:
                    if gate is not None:
                        wait(gate, min(left, READER_CHECK_S))
                        continue
                    gate = Gate()
                    waited.wake = gate.open
                    self._waiting[gate] = None
                    # Before the gate was there, it may have become ready, or its reader may have left.
                    continue
                try:
                    self._read_until(ready, until, idle=wait is not Gate.wait)
                finally:
                    self._reading.give_back(ticket)
                    del ticket
        finally:
            if gate is not None:
                self._waiting.pop(gate, None)
            self._call_next()
            self._close_if_over()

    def _read_until(self, ready: Callable[[], bool], until: float, *, idle: bool) -> None:
        while not ready() and not self.ended and (left := until - (now := time.monotonic())) > 0:
            self._pump(now, left, idle=idle)

    def _call_next(self) -> None:
        """Let another thread read, if any waits and nobody reads."""
        if self._waiting and self._reading.free:
            for gate in list(self._waiting):
                gate.open()
                return

    def _pump(self, now: float, timeout: float, *, idle: bool = False) -> None:
        """Read once, and hand out what came."""
        silence = PING_AFTER_S - (now - max(self.heard, self._listened))
        if self._core.pongs:
            self._pong_by = min(self._pong_by, now + DELAYED_SEND_S)
        if silence <= 0 or self._pong_by <= now or self._unsent or self._core.out:
            with self._changing():
                silence = self._silence(now)
                if silence <= 0:
                    self._break("the server has not answered a ping")
                    return
                self._flush()
        sock, limit = self._sock, min(timeout, silence, self._pong_by - now)
        if self._unsent:
            limit = min(limit, DELAYED_SEND_S)
        if idle:
            sock.await_readable(limit)
            limit = 0.0 if type(sock) is SharedSocket else limit
        if not sock.readable(limit):
            return
        if type(sock) is SharedSocket:
            with self._mutex:
                try:
                    self._hand_out(sock.receive(limit))
                except BaseException as error:
                    self._interrupted(error)
                    raise
            return
        with self._interruptible():
            data = sock.receive(limit)
        with self._changing():
            self._hand_out(data)

    def _hand_out(self, data: bytes | None) -> None:
        """Give what was read to those who wait for it. Under the guard."""
        if data:
            self.heard = time.monotonic()
            try:
                self._core.feed(data)
            except (ProtocolError, MalformedMessage) as error:
                self._break(reason(error))
                raise not_etcd(self.label, reason(error)) from None
        elif data is not None:
            self._break("the server closed the connection")
        # What this puts out leaves with the next request, or before the next read. Answers to pings may wait
        # for the request a bit longer.

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A read that waits by itself: whatever interrupts it may have lost data."""
        try:
            yield
        except BaseException as error:
            with self._mutex:
                self._break(str(error) or type(error).__name__)
            raise

    def end(self, why: str) -> None:
        with self._mutex:
            self._break(why)
        self._close_if_over()

    def _close_if_over(self) -> None:
        """Close the socket of a connection that has ended, but never while a thread waits on it: its number
        could be another's.
        """
        if self.ended and self._reading.free:
            self._sock.close()

    def forget(self) -> None:
        """In a forked child: close our copy of the socket, without a word to the server."""
        self.ended = True
        self._sock.close()

    def __del__(self) -> None:
        if (sock := self.__dict__.get("_sock")) is not None:  # it is missing if making this was interrupted
            sock.close()


class BlockingTransport(ClusterTransport):
    """The connection of a client's threads; where greenlets are, one for each thread of the system."""

    def __init__(self, address: Address, credentials: Credentials, *, for_keeper: bool = False) -> None:
        super().__init__(address, credentials, for_keeper=for_keeper)
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's connections: our copies of their sockets are closed, and the server hears
        nothing of it.
        """
        for connection in getattr(self, "_connections", {}).values():
            connection.forget()
        self._connections: dict[int, BlockingConnection] = {}
        self._connecting = Role()
        self._accompanied = False

    def inside(self) -> bool:
        for connection in list(self._connections.values()):
            if connection._mutex._is_owned():
                return True
        return self._connecting._mutex._is_owned()

    def _thread(self) -> int:
        if self.for_keeper or not native.green("socket"):
            return 0
        return int(native.original("get_ident")())

    def ready_connection(self) -> MemberConnection | None:
        connection = self._connections.get(self._thread() if native.green("socket") else 0)
        return None if connection is None or connection.ended or connection._core.draining else connection

    async def connection(self, timeout: float) -> tuple[MemberConnection, float]:
        thread = self._thread()
        connection = self._connections.get(thread)
        if connection is not None and connection.usable:
            return connection, 0.0
        began = time.monotonic()
        limit = min(self.address.connect_timeout, timeout)
        ticket = self._connecting.take()
        while ticket is None:  # another thread connects for all
            time.sleep(0.002)
            connection = self._connections.get(thread)
            if connection is not None and connection.usable:
                return connection, time.monotonic() - began
            if time.monotonic() > began + limit:
                raise Unreached(str(timeout_error(self.address.label, limit)))
            ticket = self._connecting.take()
        try:
            connection = self._connections.get(thread)
            if connection is None or not connection.usable:
                self._check_open()
                connection = await self._connect_blocking(max(0.001, began + limit - time.monotonic()))
                self._connections[thread] = connection
                if self.closed:  # meanwhile: nobody else would close this one
                    connection.end("this client was closed")
                    self._check_open()
        finally:
            self._connecting.give_back(ticket)
        return connection, time.monotonic() - began

    async def _connect_blocking(self, timeout: float) -> BlockingConnection:
        connection = await self._connect(timeout)
        assert isinstance(connection, BlockingConnection)
        return connection

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed("this client was closed")

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _connect_companion(self, companion: ClusterTransport, timeout: float) -> None:
        await companion.warm(timeout)

    async def _open(self, endpoint: Endpoint, timeout: float) -> BlockingConnection:
        until = time.monotonic() + timeout
        error: OSError = OSError("its name has no address")
        try:
            found = _addresses(endpoint, timeout)
        except OSError as failed:
            raise unreachable(endpoint.label, failed) from None
        standard_streams.occupy()
        for family, kind, protocol, _, target in found:
            try:
                sock: Any = socket.socket(family, kind, protocol)
            except OSError as failed:  # this process may open no more files
                error = failed
                continue
            try:
                sock.settimeout(max(0.001, until - time.monotonic()))
                sock.connect(target)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock = self._secured(sock, endpoint)
                return self._connection_on(sock, endpoint)
            except OSError as failed:
                error = failed
                sock.close()
            except BaseException:
                sock.close()
                raise
        if self.address.tls is not None:
            self.address.tls.forget()
        if isinstance(error, InterlockError):
            raise error
        if isinstance(error, TimeoutError):
            raise unreachable(endpoint.label, f"no answer in {duration(timeout)}")
        raise unreachable(endpoint.label, error)

    def _secured(self, sock: Any, endpoint: Endpoint) -> Any:
        tls = self.address.tls
        if tls is None:
            return sock
        wrapped = tls.context().wrap_socket(sock, server_hostname=tls.server_name or endpoint.host)
        if wrapped.selected_alpn_protocol() not in ("h2", None):
            wrapped.close()
            raise not_etcd(endpoint.label, "its TLS does not speak HTTP/2")
        return wrapped

    def _connection_on(self, sock: Any, endpoint: Endpoint) -> BlockingConnection:
        tls = self.address.tls is not None
        if not native.green("socket"):
            return BlockingConnection(endpoint, self._credentials, SharedSocket(sock), tls=tls)
        if self.for_keeper:  # the keeper's thread is no greenlet
            try:
                sock = native.PlainSocket(sock)
            except (AttributeError, TypeError):
                pass  # an unknown library: only its own thread can use the socket
        return BlockingConnection(endpoint, self._credentials, TimedSocket(sock), tls=tls)

    async def close(self) -> None:
        self.closed = True
        for connection in list(self._connections.values()):
            connection.end("this client was closed")
        self._connections.clear()


def _addresses(endpoint: Endpoint, timeout: float) -> list[resolver.AddressInfo]:
    """The result of `getaddrinfo` for a host; greenlets look it up without blocking each other."""
    if native.green("socket") or not resolver.named(endpoint.host):
        return socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    try:
        return resolver.addresses(endpoint.host, endpoint.port, timeout)
    except OSError as error:
        raise OSError(str(error)) from None
