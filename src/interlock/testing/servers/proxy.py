"""A proxy in front of a server: it loses, delays, keeps, stalls and cuts what clients and server say to each other.

    with Proxy(server.port) as proxy, interlock.connect(proxy.through(server.url())) as client:
        proxy.requests.lose()  # as if the cable to the server were cut, while its answers still arrive

Every fault belongs to a direction, `requests` (from clients to the server) or `replies`, and holds for the
connections that are open and for new ones, until `heal`. `set` chooses one of the usual faults by its name:

| mode | what it does |
|---|---|
| `pass` | passes everything on; connections that lost bytes are reset, because nobody could make sense of the rest |
| `mute` | loses requests; replies would pass |
| `deaf` | passes requests and loses their replies |
| `hole` | loses both; connections look open to either side |
| `half_open` | the server's ends are closed and the clients are not told; new connections are a hole |
| `late` | each piece arrives up to 0.4 s late, in order |
| `cut` | resets every connection, and new ones |

A *piece* is what one read of a socket returns: usually a whole request or a whole reply. All proxies of a process
share one thread with an event loop, which starts with the first of them and ends with the last.
"""  # noqa: E501  (a table)

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from inspect import isawaitable
from itertools import cycle
from typing import Any, Literal, Self, TypeVar, get_args

from interlock.testing.patience import PATIENCE

Mode = Literal["pass", "mute", "deaf", "hole", "half_open", "late", "cut"]
MODES: tuple[Mode, ...] = get_args(Mode)

LATE_S = 0.4  # by which a piece may be late in the mode of that name
PIECE_BYTES = 65536
BACKLOG = 1024
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER without time: the other side gets a reset

T = TypeVar("T")


class Piece:
    """Bytes that have arrived at the proxy; empty if their sender has hung up."""

    def __init__(self, data: bytes, connection: Connection, is_request: bool, stream: _Stream) -> None:
        self.data = data
        self.connection = connection
        self.is_request = is_request
        self._stream = stream

    def pass_on(self, data: bytes) -> None:
        """Pass these bytes on now, before those that the intercept returns."""
        self._stream.take(data)


Intercept = Callable[[Piece], "bytes | Awaitable[bytes | None] | None"]
"""A function that sees each piece and returns what is passed on instead; None loses the piece.

It runs in the proxies' thread, so it must not block. If it returns an awaitable, as
`asyncio.to_thread(work)` is, whatever follows in that direction of that connection waits for its result.
It may call all methods of a proxy but `listen` and `close`. The result for an empty piece does not count.
If it raises, the connection is reset, and `close` raises the same.
"""


class Proxy:
    """Listens on a port of 127.0.0.1 and passes bytes on to a server on another port.

    With several `targets`, each new connection goes to the next of them, as behind a balancer. With a
    `round_trip` in seconds the server is that far away: connecting takes one round trip, and so does each
    answer; it may be changed at any time. `accepted` counts the connections that clients have made.

    `close`, or the end of a `with` block, resets what is open and leaves no socket, task or thread behind.
    """

    def __init__(self, *targets: int, round_trip: float = 0.0, intercept: Intercept | None = None) -> None:
        self.round_trip = round_trip
        self.accepted = 0
        self.requests, self.replies = Direction(self), Direction(self)
        self._targets, self._next = targets, cycle(targets)
        self._intercept = intercept
        self._resets_new = False
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._error: BaseException | None = None
        self._closed = False
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        self._thread = _enter()
        self._thread.run(self._listen(listening))

    # ---- where it is -------------------------------------------------------------------------

    def through(self, url: str) -> str:
        """Return the URL of a server, with this proxy's port in the place of the server's."""
        return re.sub(rf":(?:{'|'.join(map(str, self._targets))})(?!\d)", f":{self.port}", url)

    def aim(self, *targets: int) -> None:
        """Send new connections to these ports in turn, beginning with the first."""
        self._targets, self._next = targets, cycle(targets)

    @property
    def connections(self) -> list[Connection]:
        """The connections that are open now."""
        return self.call(lambda: list(self._connections))

    # ---- faults ------------------------------------------------------------------------------

    def set(self, mode: Mode) -> None:
        """From now on, break the way as the mode says, and in no other way; kept pieces stay kept."""
        self.call(lambda: self._set(mode))

    def heal(self) -> None:
        """Pass everything on, and reset the connections that lost bytes."""
        self.set("pass")

    def reset(self) -> None:
        """Reset every connection that is open; new ones pass."""
        self.call(lambda: self._each(Connection.reset))

    def hang_up(self) -> None:
        """End every connection that is open, for both sides, as a program that closes it; new ones pass."""
        self.call(lambda: self._each(Connection.hang_up))

    def stop_listening(self) -> None:
        """From now on connecting is refused, as by a machine on which no server runs. What is open stays."""
        self.call(self._stop_listening)

    def listen(self) -> None:
        """Take connections again, on the same port."""
        if self._server is None:
            self._thread.run(self._listen(socket.create_server(("127.0.0.1", self.port))))

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the proxies' thread, between two pieces, and return its result."""

        async def called() -> T:
            return function()

        if self._thread.is_current():
            return function()
        return self._thread.run(called())

    # ---- its end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Reset what is open and stop listening; raises what an intercept raised. Closing twice is safe."""
        if not self._closed:
            self._closed = True
            self._thread.run(self._close())
            _leave(self._thread)
            if self._error is not None:
                raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- in the proxies' thread --------------------------------------------------------------

    async def _listen(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._accept, sock=listening, backlog=BACKLOG)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _each(self, function: Callable[[Connection], None]) -> None:
        for connection in list(self._connections):
            function(connection)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = Connection(self, reader, writer)
        self._connections.add(connection)
        task = asyncio.ensure_future(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        if self._resets_new:
            connection.reset()
        try:
            await connection.run(next(self._next))
        finally:
            self._connections.discard(connection)

    def _set(self, mode: Mode) -> None:
        self._resets_new = mode == "cut"
        for direction, loses in ((self.requests, "mute"), (self.replies, "deaf")):
            direction.break_off(loses=mode in (loses, "hole", "half_open"))
            direction.spread = LATE_S if mode == "late" else 0.0
        for connection in list(self._connections):
            if mode == "cut":
                connection.reset()
            elif mode == "half_open":
                connection.forget_server()
        self._reset_torn()

    def _reset_torn(self) -> None:
        """Reset connections in which something would follow upon bytes that were lost."""
        for connection in list(self._connections):
            if any(stream.torn and not stream.direction.loses for stream in connection.streams):
                connection.reset()

    async def _close(self) -> None:
        self._stop_listening()
        self._resets_new = True  # those that the system has accepted meanwhile
        await asyncio.sleep(0)
        while self._tasks:
            self._each(Connection.reset)
            await asyncio.wait(self._tasks)

    def _failed(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error


class Direction:
    """The way from the clients to the server, or the way back, of all connections of a proxy.

    `passed` and `lost` count bytes.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.passed = self.lost = 0
        self.loses = False
        self.seconds = self.spread = 0.0
        self._random = random.Random(0)
        self._flows = asyncio.Event()
        self._flows.set()
        self._keeps = _After()
        self._cuts = _After()

    def flow(self) -> None:
        """Pass everything on again, and reset the connections that lost bytes."""

        def flow() -> None:
            self.break_off()
            self._proxy._reset_torn()

        self._proxy.call(flow)

    def lose(self) -> None:
        """Lose everything, also that a side hangs up; connections stay open."""
        self._proxy.call(lambda: self.break_off(loses=True))

    def stall(self) -> None:
        """Pass nothing on, and lose nothing: it arrives after `flow`, in order.

        The proxy stops reading, so a sender cannot write more than the buffers between them hold.
        """

        def stall() -> None:
            self.break_off()
            self._flows.clear()

        self._proxy.call(stall)

    def delay(self, seconds: float, spread: float = 0.0) -> None:
        """Let each piece arrive that much later, and up to `spread` more by chance; order is kept."""

        def delay() -> None:
            self.break_off()
            self.seconds, self.spread = seconds, spread

        self._proxy.call(delay)

    def cut(self, times: int = 1, *, after_pieces: int = 0, after_bytes: int = 0) -> None:
        """Reset the connection on which the next piece arrives, without the piece; so many `times`.

        Before the first time, so many pieces and then so many bytes still pass: with `after_bytes`, a
        message ends in its middle.
        """
        self._proxy.call(lambda: self._cuts.set(times, after_pieces, after_bytes))

    def keep(self, pieces: int = 1, *, after_bytes: int = 0) -> None:
        """Keep the next pieces, and whatever follows them on their connections, until `deliver`.

        Before that, so many bytes still pass. The other side does not hear that the sender of a kept piece
        has hung up: what it sent may still arrive.
        """
        self._proxy.call(lambda: self._keeps.set(pieces, 0, after_bytes))

    @property
    def kept(self) -> list[bytes]:
        """The pieces that are kept now."""
        return self._proxy.call(lambda: [data for stream in self._streams() for data in stream.kept])

    def deliver(self) -> None:
        """Let what was kept arrive, where the receiver has not hung up; what follows passes, too."""

        def deliver() -> None:
            for stream in self._streams():
                stream.deliver()

        self._proxy.call(deliver)

    # ---- in the proxies' thread --------------------------------------------------------------

    def _streams(self) -> list[_Stream]:
        return [
            stream
            for connection in self._proxy._connections
            for stream in connection.streams
            if stream.direction is self
        ]

    def break_off(self, loses: bool = False) -> None:
        """End every fault of this direction, or all but one: that it loses what comes."""
        self.loses = loses
        self.seconds = self.spread = 0.0
        self._keeps.set(0, 0, 0)
        self._cuts.set(0, 0, 0)
        self._flows.set()

    async def flowing(self) -> None:
        await self._flows.wait()

    def lateness(self) -> float:
        return self.seconds + self.spread * self._random.random()

    def split_for_keep(self, data: bytes) -> tuple[bytes, bytes]:
        """What of a piece passes, and what is kept."""
        return self._keeps.split(data) or (data, b"")

    def split_for_cut(self, data: bytes) -> bytes | None:
        """What of a piece still passes before its connection is reset; None if all of it passes."""
        found = self._cuts.split(data)
        return None if found is None else found[0]


class _After:
    """Counts pieces and bytes that pass before something happens, and how often it happens."""

    def __init__(self) -> None:
        self.set(0, 0, 0)

    def set(self, times: int, pieces: int, size: int) -> None:
        self._times, self._pieces, self._bytes = times, pieces, size

    def split(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Cut a piece in two if it happens now, and count that; the second part is never empty."""
        if self._times == 0:
            return None
        if self._pieces > 0:
            self._pieces -= 1
            return None
        if len(data) <= self._bytes:
            self._bytes -= len(data)
            return None
        self._times -= 1
        size, self._bytes = self._bytes, 0
        return data[:size], data[size:]


class Connection:
    """One connection of a client, with the one to the server that was made for it.

    `label` is for intercepts: whatever they want to remember of it.
    """

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self.opened, self._ended = asyncio.Event(), asyncio.Event()
        self.label: Any = None
        self.orphaned = False  # its client has gone, and something that it sent is or was kept
        _send_at_once(client)
        self._requests = _Stream(self, proxy.requests, reader)
        self.streams = [self._requests]

    def reset(self) -> None:
        """End it for both sides at once, as a firewall or a machine that lost its memory does."""
        self._proxy.call(lambda: self._end(_reset))

    def hang_up(self) -> None:
        """End it for both sides as a program that closes it. If requests are kept, the server is not told."""

        def hang_up() -> None:
            if self._requests.kept:
                self.orphaned = True
                self._client.close()
            else:
                self._end(asyncio.StreamWriter.close)

        self._proxy.call(hang_up)

    # ---- in the proxies' thread --------------------------------------------------------------

    async def run(self, target: int) -> None:
        """Pass on what both sides say until one of them ends it."""
        tasks = [asyncio.ensure_future(work) for work in (self._requests.pump(), self._open(target))]
        await self._ended.wait()
        for stream in self.streams:
            tasks += stream.tasks
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for writer in self._writers():
            with suppress(OSError):
                await writer.wait_closed()

    async def _open(self, target: int) -> None:
        """Connect to the server, after the time that connecting takes to a distant one."""
        proxy, loop = self._proxy, asyncio.get_running_loop()
        # The system has answered the client's SYN at once: what is sent first makes up for that.
        self._requests.not_before = opens = loop.time() + 1.5 * proxy.round_trip
        await asyncio.sleep(opens - loop.time())
        if proxy.requests.loses and proxy.replies.loses:  # the server does not hear of it at all
            self._requests.torn = True
            return
        try:
            reader, self._server = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            if proxy.replies.loses:
                self._requests.torn = True
            else:
                self.reset()
            return
        _send_at_once(self._server)
        replies = _Stream(self, proxy.replies, reader)
        self.streams.append(replies)
        replies.tasks.append(asyncio.ensure_future(replies.pump()))
        self.opened.set()

    def forget_server(self) -> None:
        """Close the server's end, while the client's stays open."""
        for stream in self.streams:
            stream.torn = True
        if self._server is not None:
            _reset(self._server)

    def end_of(self, stream: _Stream, *, broken: bool) -> None:
        """A side has hung up, or is gone."""
        if stream.direction.loses:
            stream.torn = True  # the other side does not hear of it
        elif stream is self._requests and stream.kept:
            self.orphaned = True
        elif self.orphaned:
            if stream is not self._requests:
                self._end(_reset)
        elif broken:
            self._end(_reset)
        else:
            stream.finish()

    async def see(self, data: bytes, stream: _Stream) -> bytes | None:
        """What the intercept makes of a piece."""
        if self._proxy._intercept is None:
            return data
        try:
            seen = self._proxy._intercept(Piece(data, self, stream is self._requests, stream))
            return await seen if isawaitable(seen) else seen
        except Exception as error:
            self._proxy._failed(error)
            self._end(_reset)
            return None

    def write(self, stream: _Stream, data: bytes) -> asyncio.StreamWriter | None:
        """Send it, or that there is no more if it is empty; None if the receiver is gone."""
        writer = self._server if stream is self._requests else self._client
        if writer is None or writer.is_closing() or (self.orphaned and writer is self._client):
            return None
        if data:
            writer.write(data)
        else:
            writer.write_eof()
            if len(self.streams) == 2 and all(stream.finished for stream in self.streams):
                self._end(asyncio.StreamWriter.close)
        return writer

    def lateness(self) -> float:
        return self._proxy.round_trip / 2

    def _writers(self) -> list[asyncio.StreamWriter]:
        return [writer for writer in (self._client, self._server) if writer is not None]

    def _end(self, close: Callable[[asyncio.StreamWriter], object]) -> None:
        if close is _reset or not self._ended.is_set():
            self._ended.set()
            for writer in self._writers():
                close(writer)


class _Stream:
    """The bytes of one connection in one direction."""

    def __init__(self, connection: Connection, direction: Direction, reader: asyncio.StreamReader) -> None:
        self.direction = direction
        self.torn = False  # something was lost
        self.finished = False  # its sender has said that there is no more
        self.kept: list[bytes] = []
        self.not_before = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self._connection = connection
        self._reader = reader
        self._late: deque[tuple[float, bytes]] = deque()
        self._is_flushing = False

    async def pump(self) -> None:
        broken = False
        try:
            while True:
                await self.direction.flowing()
                data = await self._reader.read(PIECE_BYTES)
                await self.direction.flowing()
                seen = await self._connection.see(data, self)
                if not data:
                    break
                if seen and (writer := self.take(seen)):
                    await writer.drain()
        except OSError:
            broken = True
        self._connection.end_of(self, broken=broken)

    def take(self, data: bytes) -> asyncio.StreamWriter | None:
        way = self.direction
        if way.loses:
            self._lose(data)
            return None
        if self.kept:
            self.kept.append(data)
            return None
        passes, kept = way.split_for_keep(data)
        if kept:
            self.kept.append(kept)
        before_cut = way.split_for_cut(passes) if passes else None
        if before_cut is None:
            return self._pass(passes) if passes else None
        if before_cut:
            self._pass(before_cut)
        self._connection.reset()
        return None

    def _lose(self, data: bytes) -> None:
        self.torn = True
        self.direction.lost += len(data)

    def _pass(self, data: bytes) -> asyncio.StreamWriter | None:
        now = asyncio.get_running_loop().time()
        due = max(self.not_before, now + self._connection.lateness() + self.direction.lateness())
        if self._is_flushing or due > now or not self._connection.opened.is_set():
            self._late.append((due, data))
            if not self._is_flushing:
                self._is_flushing = True
                self.tasks = [task for task in self.tasks if not task.done()]
                self.tasks.append(asyncio.ensure_future(self._flush()))
            return None
        return self._send(data)

    def _send(self, data: bytes) -> asyncio.StreamWriter | None:
        self.direction.passed += len(data)
        return self._connection.write(self, data)

    async def _flush(self) -> None:
        await self._connection.opened.wait()
        loop = asyncio.get_running_loop()
        try:
            while self._late:
                due, data = self._late.popleft()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self.direction.flowing()
                if self.direction.loses:
                    self._lose(data)
                elif writer := self._send(data):
                    await writer.drain()
        except OSError:
            self._connection.end_of(self, broken=True)
        finally:
            self._is_flushing = False

    def finish(self) -> None:
        """Its sender has hung up: the receiver is told when everything else has arrived."""
        self.finished = True
        self._pass(b"")

    def deliver(self) -> None:
        kept, self.kept = self.kept, []
        for data in kept:
            self._pass(data)


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    writer.transport.abort()


# ---- several at once ---------------------------------------------------------------------------


@contextmanager
def proxies(ports: Sequence[int], *, round_trip: float = 0.0) -> Iterator[list[Proxy]]:
    """A proxy in front of each of these ports."""
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy(port, round_trip=round_trip)) for port in ports]


def through(proxies: Sequence[Proxy], url: str) -> str:
    """Return the URL of several servers, with each proxy's port in the place of its server's."""
    for proxy in proxies:
        url = proxy.through(url)
    return url


# ---- the thread --------------------------------------------------------------------------------


class _Thread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.users = 0
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="interlock-proxies")
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)


_lock = threading.Lock()
_threads: list[_Thread] = []  # one, while there is a proxy; a forked child has none


def _enter() -> _Thread:
    with _lock:
        if not _threads or _threads[0].process != os.getpid():
            _threads[:] = [_Thread()]
        _threads[0].users += 1
        return _threads[0]


def _leave(thread: _Thread) -> None:
    with _lock:
        thread.users -= 1
        if thread.users == 0:
            thread.end()
            if thread in _threads:
                _threads.remove(thread)
