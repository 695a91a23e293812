"""The seam to kazoo: one session with the ensemble, requests that are sent on it, and what kazoo hides about
it.

kazoo gives the connection, TLS, credentials, and the tour through the servers. Of its API this uses one call,
`_call`, which sends a request and settles an object when it is answered. It is given objects of ours: they
set the signal of the caller's own runtime on the connection's thread, so neither a worker thread of kazoo nor
an executor stands between a reply and its caller, and watch events and replies are seen in the order in which
the server sent them.

What kazoo hides is taken from two of its methods. `_connect` knows the negotiated timeout; `_send_ping` is
called when nothing was sent for a third of it, and there we write to a node of the session's
own, because a ping proves nothing (see `deadline_rule`).
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from random import shuffle
from typing import Any

from interlock._core.runtime import Signal
from interlock._support import clock, native
from interlock._support.record import record
from interlock._support.wording import duration
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.zookeeper import requests, wire
from interlock.backends.zookeeper.address import SESSION_TIMEOUT_S, Address
from interlock.backends.zookeeper.bell import Bell
from interlock.backends.zookeeper.deadline_rule import APART, ConfirmedWrites
from interlock.backends.zookeeper.errors import QUOTA, refused, translated, unreadable
from interlock.backends.zookeeper.handler import Handler
from interlock.backends.zookeeper.library import (
    LOG,
    NodeExists,
    NoNode,
    client,
    exceptions,
    serialization,
    states,
)
from interlock.backends.zookeeper.paths import Paths
from interlock.backends.zookeeper.requests import Request
from interlock.errors import InterlockError, StoreUnavailable, Unreached

# How often the session's own node is written to, as part of the timeout; more than `deadline_rule.APART`.
HEARTBEAT_PART = 0.3
MAX_FOLDERS_REMEMBERED = 4096  # that are remembered
CLOSE_TIMEOUT_S = 1.0  # seconds for which the end of a session is waited for
NOT_THERE = "; is one running there?"
OTHER_PRODUCT = " answers, but is not ZooKeeper); is it the port of another product, or one for TLS?"
HUNG_UP = "; has it lost its quorum, or does maxClientCnxns permit no further connection?"


REFUSING = (
    states.KeeperState.AUTH_FAILED,
    states.KeeperState.CLOSED,
    states.KeeperState.EXPIRED_SESSION,
)
"""States in which kazoo refuses every request."""


class Answer:
    """The future that kazoo settles when a request is answered, on the thread of the connection."""

    __slots__ = ("_request", "_sent", "_session_client", "done", "error", "signal", "then", "value")

    def __init__(self, session_client: SessionClient, request: Request, signal: Signal | None = None) -> None:
        self._session_client = session_client
        # Before it is sent: a slow way to the server must shorten a lease, not lengthen it. None for what is
        # no write.
        self._sent = session_client.now() if request.type in requests.WRITES else None
        self._request = request
        self.signal = signal
        self.then: Callable[[Answer], None] | None = None  # called at the end, on the connection's thread
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def set(self, value: Any = None) -> None:
        if not requests.answers(self._request, value):
            self.set_exception(unreadable(self._session_client.label, "it is of another kind"))
            return
        self.value = value
        if self._sent is not None:
            self._session_client.confirmed(self._request.type, self._sent, value)
        self._end()

    def set_exception(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        if self.then is not None:
            self.then(self)
        if self.signal is not None:
            self.signal.set()

    def failed(self, kind: type[Exception]) -> bool:
        return isinstance(self.error, kind)

    def get(self) -> Any:
        """The value; raises the error of interlock for any other answer."""
        if self.error is not None:
            raise translated(self._session_client.label, self.error)
        return self.value


class Beat(Answer):
    """The answer to a write to the session's own node.

    If the node's folder is missing, it is made, and the write repeated.
    """

    __slots__ = ("_parents_made", "_session")

    def __init__(
        self,
        session_client: SessionClient,
        request: Request,
        session: Session,
        signal: Signal | None,
        again: bool,
    ) -> None:
        super().__init__(session_client, request, signal)
        self._session = session
        self._parents_made = again

    def _end(self) -> None:
        self._session.node_made = self.error is None or self.failed(NodeExists)
        if self.failed(QUOTA) and self._sent is not None:
            # The leader refuses by an entry in its log, as it writes by one. A client that may make no more
            # nodes must not lose those it has.
            self._session_client.confirmed(serialization.Create.type, self._sent, None)
        if self.failed(NoNode) and not self._parents_made:
            self._session_client.beat(self._session, self.signal, again=True)
        else:
            super()._end()


@record
class Listing:
    """The nodes of a session, as the servers have listed them."""

    paths: frozenset[str]
    asked: float
    took: float  # seconds


class Session:
    """One session with the ensemble, as this client knows it."""

    def __init__(self, number: int, writes: ConfirmedWrites, now: float) -> None:
        self.number = number
        self.writes = writes
        self.beaten = now  # when its own node was last written to, or the session began
        self.node_made = False
        self.ids: dict[str, int] = {}  # claims that may stand in it, with the bytes of their paths
        self.size = 0  # bytes of these paths together
        self.listing: Listing | None = None
        self._mutex = native.mutex()

    @property
    def timeout(self) -> float:
        return self.writes.timeout

    def enter(self, id: str, size: int) -> None:
        """Note a claim whose path has so many bytes."""
        with self._mutex:
            self.size += size - self.ids.get(id, 0)
            self.ids[id] = size

    def leave(self, id: str) -> None:
        with self._mutex:
            self.size -= self.ids.pop(id, 0)


class SessionClient:
    """The session of one client; its stores for tasks and for plain threads share it."""

    now = staticmethod(clock.now)

    def __init__(self, address: Address) -> None:
        self.address = address
        self.label = address.label
        self.paths = Paths(address.chroot)
        self.on_doubt: list[Callable[[], None]] = []
        self.on_session_lost: list[Callable[[Collection[str] | None], None]] = []
        self.on_session_shortened: list[Callable[[float, float], None]] = []
        self.on_session: list[
            Callable[[float], None]
        ] = []  # called with the timeout that the servers have granted
        self.pace = ConnectPace(address.connect_timeout)
        self.session_timeout = address.session_timeout or SESSION_TIMEOUT_S  # seconds that are asked for
        self.no_ephemerals = False  # a server below 3.6 does not list a session's nodes
        self._reset()

    def _reset(self) -> None:
        self.mutex = native.mutex()
        self.session: Session | None = None
        self.trips: deque[float] = deque(maxlen=8)  # seconds that the last requests have taken
        self.folders: dict[str, None] = {}  # that were there a short while ago
        self.worn: dict[
            str, int
        ] = {}  # folders that have no numbers left, with the transaction that made each
        self.clock_offset: float | None = None  # the servers' clock less our own, seconds
        self._client: Any = None
        self._connected = False
        self._failure: InterlockError | None = None  # what has ended kazoo's loop
        self._why_not = (
            NOT_THERE  # the end of a sentence: why the last attempt to connect failed, and what to look at
        )
        self._closed = False
        self._thread: int | None = None  # the connection's
        self._ident: Callable[[], int] = native.original("get_ident")
        self._awaiting: set[Signal] = set()  # of those who wait for a connection
        self._bells: dict[Bell, None] = {}  # of those who watch nodes: closing rings them

    @property
    def trip(self) -> float:
        """Seconds that a request takes at least: what the quickest of the last few has taken.

        So a distant server counts as distant, and one that was away for a moment does not.
        """
        return min(tuple(self.trips), default=0.0)

    # ---- connecting --------------------------------------------------------------------

    async def connect(self, runtime: WaitRuntime, timeout: float) -> Session:
        """Return the session once it is connected; `Unreached` if it is not within `timeout` seconds."""
        session = self.session
        if self._connected and session is not None:
            return session
        until = self.now() + timeout
        while True:
            signal = runtime.signal()
            with self.mutex:
                self._awaiting.add(signal)
            try:
                self._begin()
                session = self.session
                if self._connected and session is not None:
                    return session
                if self._closed or not await runtime.wait(signal, max(0.0, until - self.now())):
                    raise Unreached(
                        f"{self.label}: no server could be reached in {duration(timeout)}{self._why_not}"
                    )
                self._raise_failure()
            finally:
                with self.mutex:
                    self._awaiting.discard(signal)

    def _begin(self) -> None:
        """Start kazoo, unless it runs already."""
        with self.mutex:
            if self._client is not None or self._closed:
                return
            started = self._client = self._new_client()
        try:
            started.start_async()
        except BaseException as error:  # no thread or no socket to be had: the next call tries again
            with self.mutex:
                self._client, self._connected = None, False
            if isinstance(error, (RuntimeError, OSError)):
                with suppress(Exception):
                    started.close()  # what wakes its loop: no thread runs that would
                raise Unreached(f"{self.label}: {error}") from error
            _stop(started)  # after an interrupt its thread may run
            raise

    def _raise_failure(self) -> None:
        """Raise what has ended kazoo's loop, once."""
        with self.mutex:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _new_client(self) -> Any:
        address = self.address
        handler = Handler(
            address.connect_timeout / max(1, len(address.hosts)),
            lambda loop: self._run(made, loop),
            self._on_connect_error,
        )
        made = client.KazooClient(
            hosts=address.hosts_text,
            timeout=self.session_timeout,
            handler=handler,
            logger=LOG,
            auth_data=address.auth,
            sasl_options=dict(address.sasl) if address.sasl else None,
            connection_retry={
                "max_tries": -1,
                "delay": 0.05,
                "backoff": 2,
                "max_delay": 0.5,
                "sleep_func": handler.sleep_func,
            },
            **address.tls,
        )
        handler.client = made
        made.add_listener(partial(self._on_state, made))
        self._tap(made, handler)
        return made

    def _tap(self, made: Any, handler: Handler) -> None:
        """Learn from kazoo's connection what it hides, and have it try the next server in time."""
        connection = made._connection
        connect, ping, invoke = connection._connect, connection._send_ping, connection._invoke

        def _connect(host: str, address: str, port: int) -> Any:
            asked, is_new = self.now(), not made._session_id
            try:
                read_timeout, connect_timeout = connect(host, address, port)
            except exceptions.ConnectionDropped:
                if (wire_used := connection._socket) is not None:  # it was connected
                    said = OTHER_PRODUCT if wire_used.other_product else f" hung up){HUNG_UP}"
                    self._why_not = f" ({host}:{port}{said}"
                raise
            self.pace.reached(self.now() - asked)
            self.trips.append(self.now() - asked)  # a first guess; more than one trip, and a quorum's write
            self._on_connected(made, read_timeout * 1.5 / 1000, asked, is_new)
            return read_timeout, connect_timeout

        def _send_ping(connect_timeout: float) -> None:
            ping(connect_timeout)
            self._beat_if_due(APART)  # the next ping may come late: rather too early now

        def _invoke(timeout: float, *asked: Any, **options: Any) -> Any:
            # kazoo gives a server that accepts connections and says nothing a third of the session, or more.
            return invoke(min(timeout, handler.connect_timeout), *asked, **options)

        connection._connect, connection._send_ping, connection._invoke = _connect, _send_ping, _invoke
        connection._expand_client_hosts = self._servers

    def _servers(self) -> list[tuple[str, str, int]]:
        """The names, addresses and ports of the servers, in the order in which they are tried."""
        found: list[tuple[str, str, int]] = []
        share = self.address.connect_timeout / max(1, len(self.address.hosts))
        for host, port in self.address.hosts:
            try:
                found += ((host, *address) for address in wire.addresses(host, port, share))
            except TimeoutError as error:
                self._why_not = f" ({host}: {error}); does DNS answer on this machine?"
            except OSError as error:  # others may be found
                self._why_not = f" ({host}: {error.strerror or error}); is the name right?"
        shuffle(found)  # the clients of an ensemble must spread over its servers
        return found

    def _run(self, made: Any, loop: Callable[[], None]) -> None:
        """Run kazoo's loop; when it ends, nobody needs its sockets any more, and the next call begins
        anew.
        """
        thread = self._thread = self._ident()
        try:
            loop()
        except Exception as error:
            if self._client is made:
                self._failure = StoreUnavailable(f"{self.label}: {type(error).__name__}: {error}")
        finally:
            if self._thread == thread:
                self._thread = None
            with suppress(Exception):
                made.close()
            with self.mutex:
                if self._client is made:
                    self._client, self._connected = None, False
            self._wake()

    def _on_connect_error(self, error: Exception) -> None:
        broken = isinstance(error, (BrokenPipeError, ConnectionResetError))
        self._why_not = f" ({type(error).__name__}: {error}){HUNG_UP if broken else NOT_THERE}"

    def _on_connected(self, made: Any, timeout: float, asked: float, is_new: bool) -> None:
        shorter = other_timeout = False
        with self.mutex:
            if self._client is not made:
                return  # it was given up, and ends
            session = self.session
            if session is None or session.number != made._session_id:
                # A session of which we do not know when it began is proved by its writes alone.
                began = asked if is_new else self.now() - timeout
                session = Session(made._session_id, ConfirmedWrites(timeout, began), self.now())
                self.session = session
            elif other_timeout := timeout != session.timeout:
                shorter = session.writes.renegotiated(timeout, asked)
            self._connected = True
        if shorter:
            for shorten in self.on_session_shortened:
                shorten(session.writes.counts_from, timeout)
        if other_timeout:
            self.beat(session, None)  # what was confirmed on earlier connections proves nothing more
        for tell in self.on_session:
            tell(timeout)
        self._wake()

    def _on_state(self, made: Any, state: str) -> None:
        """kazoo tells us, on the connection's thread; connections are told by `_connect`, which knows
        more.
        """
        if self._client is not made:
            return  # it was given up: what it learns is about nobody's session
        if state == states.KazooState.SUSPENDED:
            self._connected = False
            for doubt in self.on_doubt:
                doubt()
        elif state == states.KazooState.LOST:
            with self.mutex:
                self._connected = False
                lost, self.session = self.session, None
                if made._state == states.KeeperState.AUTH_FAILED:
                    self._failure = refused(self.label)
            if lost is not None:
                for lose in self.on_session_lost:
                    lose(frozenset(lost.ids))
            self._wake()

    def _wake(self) -> None:
        with self.mutex:
            awaiting = list(self._awaiting)
        for signal in awaiting:
            signal.set()

    # ---- requests ----------------------------------------------------------------------

    def send(self, asked: Sequence[Request], signal: Signal | None) -> list[Answer]:
        """Send requests one after the other; the signal is set when the last of them is answered, as all
        are by then.
        """
        self._beat_if_due()
        sent: list[Answer] = []
        for number, request in enumerate(asked, 1):
            answer = Answer(self, request, signal if number == len(asked) else None)
            sent.append(answer)
            self._call(request, answer)
        return sent

    def tell(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Send a request that nobody waits for; `then` is called with the answer, on the connection's
        thread.
        """
        answer = Answer(self, request)
        answer.then = then
        self._call(request, answer)

    def _call(self, request: Request, answer: Answer) -> None:
        started = self._client
        if started is None:
            answer.set_exception(Unreached(f"{self.label}: not connected"))
        elif started._state in REFUSING:
            started._call(request, answer)
        else:
            # As kazoo's `_call` goes on. Not by it: a Ctrl-C that struck while it wakes the connection would
            # be swallowed there, and the request would count as refused, though it is sent.
            started._queue.append((request, answer))
            try:
                started._connection._write_sock.send(b"\0")
            except (OSError, AttributeError):  # it was closed just now
                answer.set_exception(exceptions.ConnectionClosedError("Connection has been closed"))
            else:
                # It may have ended since we asked for its state, and have given up all that was in its queue
                # before our request came.
                if started._state in REFUSING and not answer.done:
                    answer.set_exception(exceptions.ConnectionLoss())

    def confirmed(self, request_type: int, sent: float, value: Any) -> None:
        """A write was confirmed: note what that proves, and what the servers' clock says."""
        session, now = self.session, self.now()
        if session is None or sent < session.writes.counts_from:
            return  # of an earlier session
        if request_type == serialization.Transaction.type and any(
            isinstance(part, Exception) for part in value
        ):
            return  # a `multi` that was refused
        session.writes.confirm(sent, now)
        written = _written_at(request_type, value)
        if written is not None:
            self.clock_offset = written - now

    # ---- the session's own node --------------------------------------------------------

    def _beat_if_due(self, interval: float = HEARTBEAT_PART) -> None:
        session = self.session
        if (
            session is not None
            and self._connected
            and self.now() >= session.beaten + session.timeout * interval
        ):
            self.beat(session, None)

    def beat(self, session: Session, signal: Signal | None, *, again: bool = False) -> None:
        """Write to the session's own node, or make it; the signal is set when that is answered."""
        session.beaten = self.now()
        path, acl = self.paths.session(session.number), self.address.acl
        if again:
            for parent in self.parents(self.paths.sessions):
                self._call(parent, Answer(self, parent))
        if session.node_made:
            request = requests.set_data(path, b"")
        else:
            request = requests.create(path, b"", acl, requests.EPHEMERAL)
        self._call(request, Beat(self, request, session, signal, again))

    def parents(self, folder: str) -> list[Request]:
        """Requests that make a folder and all above it: the chroot for good, our own until they are empty."""
        made: list[Request] = []
        path = ""
        for part in self.paths.parents:
            path += f"/{part}"
            made.append(requests.create(path, b"", self.address.acl))
        for path in dict.fromkeys((self.paths.root, folder)):
            made.append(requests.CreateContainer(path, self.address.acl))
        return made

    def remember(self, folder: str) -> None:
        """Note that a folder is there; if it is gone by the next time, that costs one more round trip."""
        if folder not in self.folders:
            self.folders[folder] = None
            if len(self.folders) > MAX_FOLDERS_REMEMBERED:
                with suppress(StopIteration, RuntimeError):  # other threads do the same
                    self.folders.pop(next(iter(self.folders)), None)

    def new_bell(self, signal: Signal) -> Bell:
        """A bell for one wait; `forget_watcher` ends it.

        Closing rings it. kazoo does not: once it is told to stop, it keeps no watcher any more, though the
        answer to its request still arrives.
        """
        bell = Bell(signal)
        with self.mutex:
            if self._closed:
                raise Unreached(f"{self.label}: it was closed")
            self._bells[bell] = None
        return bell

    def forget_watcher(self, watcher: Bell, paths: Collection[str]) -> None:
        """Have kazoo keep no watcher of a wait that is over: many short waits would fill the memory."""
        watcher.over = True
        with self.mutex:
            self._bells.pop(watcher, None)
        started = self._client
        if started is not None:
            for watched in (started._data_watchers, started._child_watchers):
                for path in paths:
                    if (watchers := watched.get(path)) is not None:
                        watchers.discard(watcher)

    # ---- the end -----------------------------------------------------------------------

    def inside(self) -> bool:
        """Whether the caller is in a critical section, or on the connection's own thread, which must not
        wait for itself.
        """
        return self.mutex._is_owned() or self._thread == self._ident()

    def stop_soon(self) -> None:
        """End the session and its thread, without waiting for either: nobody has the client any more.

        Called by the garbage collector, in the midst of anything: no mutex may be taken.
        """
        self._closed = True
        if (started := self._client) is not None:
            _stop(started)

    async def close(self, runtime: WaitRuntime) -> None:
        """End the session, and with it all its claims; wait a moment for that, and never on the
        connection's thread.
        """
        with self.mutex:
            started, self._closed, ended = self._client, True, runtime.signal()
            connected = self._connected
            self._awaiting.add(ended)
            bells = list(self._bells)
        for bell in bells:
            bell.silence()
        if started is None:
            return
        _stop(started)
        connection = started._connection
        if connected:
            await runtime.wait(ended, CLOSE_TIMEOUT_S)
        if not connection.connection_stopped.is_set() and (sock := connection._socket) is not None:
            with suppress(OSError, ValueError):
                sock.shutdown(socket.SHUT_RDWR)  # a server that hangs: its loop must not wait for it
        with self.mutex:
            self._client = None

    def after_fork(self) -> None:
        """Forget the parent's session; the child's copies of its sockets are closed without a word to the
        server.
        """
        left = self._client
        self._reset()
        if left is not None:
            connection, waker = left._connection, left._connection._read_sock
            with suppress(OSError, ValueError, AttributeError):
                os.close(connection._socket.detach())
            if waker is not None:
                waker.close()


def _stop(started: Any) -> None:
    """Tell a client of kazoo to end its session and its loop; `KazooClient.stop` would wait for that."""
    started._stopped.set()
    with suppress(OSError, AttributeError):
        started._queue.append((serialization.CloseInstance, None))
        started._connection._write_sock.send(b"\0")


def _written_at(request_type: int, value: Any) -> float | None:
    """The instant at which a write was applied, by the servers' clock; None if its answer does not say."""
    if request_type == serialization.SetData.type:
        return float(value.mtime) / 1000
    if request_type == serialization.Create2.type:
        return float(value[1].mtime) / 1000
    return None


def late(label: str, timeout: float) -> StoreUnavailable:
    return StoreUnavailable(f"{label}: no answer in {duration(timeout)}")
