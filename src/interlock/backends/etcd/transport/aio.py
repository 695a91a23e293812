"""The asyncio transport: one connection for all tasks of an event loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from interlock._core.drive import drive
from interlock._support import standard_streams
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
from interlock.backends.etcd.transport.blocking import DISCARD_UNSENT, BlockingTransport
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.connection import UNSENT_PART, MemberConnection
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.grpc import Call
from interlock.backends.etcd.wire.http2 import ProtocolError, Stream
from interlock.backends.etcd.wire.messages import Method
from interlock.backends.etcd.wire.protobuf import MalformedMessage
from interlock.backends.etcd.wire.watching import Watched, WatchGroup
from interlock.backends.kit import resolver
from interlock.backends.kit.tasks import retrieve
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable, StoreUnfit, Unreached


class AsyncConnection(MemberConnection, asyncio.Protocol):
    """A connection for the tasks of one event loop."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, *, tls: bool) -> None:
        super().__init__(endpoint, credentials, tls=tls)
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        self._why = ""
        self._unfit: StoreUnfit | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self.heard = time.monotonic()

    # ---- as the loop's protocol -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._flush()
        self._beat()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        try:
            self._core.feed(data)
        except (ProtocolError, MalformedMessage) as error:
            self._unfit = not_etcd(self.label, reason(error))
            self.end(reason(error))
        else:
            self._flush_soon()  # after the tasks that this wakes: their requests leave in the same send

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc) if exc else "the server closed the connection")

    def pause_writing(self) -> None:
        """Ignore it: requests have deadlines, so the number of callers bounds the buffer."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def _beat(self) -> None:
        """Ask a silent server whether it lives, and give it up if it does not answer."""
        if self.ended:
            return
        silence = self._silence(time.monotonic())
        if silence <= 0:
            self.end("the server has not answered a ping")
            return
        self._flush()
        self._heartbeat = self.loop.call_later(silence, self._beat)

    def _flush_soon(self) -> None:
        """Send at the end of this turn of the loop, together with the requests of other tasks."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self.ended and self._transport is not None and (out := self._core.take()):
            self._transport.write(out)

    # ---- calls --------------------------------------------------------------------------

    async def call(self, method: Method, body: bytes, timeout: float, *, low_priority: bool = False) -> bytes:
        if not self.usable:
            raise NotProcessed(f"{self.label}: {self._why or 'the server closes the connection'}")
        over: asyncio.Future[bool] = self.loop.create_future()
        call = Call(lambda: _settle(over, True))
        stream = self._request(method, body, call, low_priority)
        self._flush_soon() if self._core.streams > 1 else self._flush()
        timer = self.loop.call_later(timeout, _settle, over, False)
        held_up = (
            None
            if stream.id
            else self.loop.call_later(timeout * UNSENT_PART, self._give_up_unsent, stream, over)
        )
        try:
            answered = await over
        except BaseException:
            self._give_up(stream)
            raise
        finally:
            timer.cancel()
            if held_up is not None:
                held_up.cancel()
        if not answered:
            self._give_up(stream)
            raise timeout_error(self.label, timeout) if stream.id else not_sent(self.label, timeout)
        if self.ended and call.status is not None and call.status.code == 14 and call.status.processed:
            raise self._unfit or Broken(f"{self.label}: {self._why}")
        return self._answer(call)

    def _give_up_unsent(self, stream: Stream, over: asyncio.Future[bool]) -> None:
        """At once, not when its task runs again: if it were sent meanwhile, nobody would wait for the
        answer.
        """
        if not stream.id:
            self._core.reset(stream)
            _settle(over, False)

    def _give_up(self, stream: Any) -> None:
        if not self.ended:
            self._core.reset(stream)
            self._flush_soon()

    def post(self, method: Method, body: bytes, done: Callable[[], object] | None = None) -> Call:
        call = self._posted(done)
        if self.usable:
            self._request(method, body, call, low_priority=True)
            self._flush_soon()
        return call

    # ---- watches ------------------------------------------------------------------------

    async def open_watches(self, watched: Sequence[Watched], timeout: float) -> WatchGroup:
        if not self.usable:
            raise NotProcessed(f"{self.label}: {self._why or 'the server closes the connection'}")
        over: asyncio.Future[bool] = self.loop.create_future()
        group = WatchGroup(lambda: _settle(over, True, group.ready or bool(group.ended)))
        self._watch(group, watched)
        self._flush_soon()
        try:
            if not await self._within(over, timeout):
                raise timeout_error(self.label, timeout)
            self._check_opened(group)
        except BaseException:
            self.close_watches(group)
            raise
        return group

    async def changed(self, group: WatchGroup, timeout: float) -> bool:
        if group.fired or group.ended or not self.usable:
            group.fired = False
            return True
        over: asyncio.Future[bool] = self.loop.create_future()
        group.wake = lambda: _settle(over, True)
        fired = await self._within(over, timeout)
        group.fired = False
        return fired

    async def _within(self, over: asyncio.Future[bool], timeout: float) -> bool:
        timer = self.loop.call_later(max(0.0, timeout), _settle, over, False)
        try:
            return await over
        finally:
            timer.cancel()

    def close_watches(self, group: WatchGroup) -> None:
        if not self.ended:
            self._unwatch(group)
            self._flush_soon()

    # ---- the end ------------------------------------------------------------------------

    def end(self, why: str) -> None:
        if self.ended:
            return
        asked = self._core.streams
        self.ended, self._why = True, why
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._transport is not None:
            if asked:  # so that no request arrives later
                sock = self._transport.get_extra_info("socket")
                try:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DISCARD_UNSENT)
                except (OSError, AttributeError):
                    pass  # it is gone already
            self._transport.abort()
        self._core.fail(why)


def _settle(over: asyncio.Future[bool], answer: bool, ready: bool = True) -> None:
    if ready and not over.done():
        over.set_result(answer)


class AsyncTransport(ClusterTransport):
    """The connection of the tasks of one loop; made when first needed, and again when it was lost."""

    def __init__(self, address: Address, credentials: Credentials, *, for_keeper: bool = False) -> None:
        super().__init__(address, credentials, for_keeper=for_keeper)
        self._connection: AsyncConnection | None = None
        self._replaced: list[
            AsyncConnection
        ] = []  # they take no new calls, and may still answer those under way
        self._connecting: asyncio.Task[MemberConnection] | None = None

    def inside(self) -> bool:
        return False  # all changes happen on the loop's own thread

    def ready_connection(self) -> MemberConnection | None:
        connection = self._connection
        if connection is not None and connection.usable and connection.loop is asyncio.get_running_loop():
            return connection
        return None

    async def connection(self, timeout: float) -> tuple[MemberConnection, float]:
        connection, loop = self.ready_connection(), asyncio.get_running_loop()
        if connection is not None:
            return connection, 0.0
        if self.closed:
            raise ClientClosed("this client was closed")
        began = time.monotonic()
        limit = min(self.address.connect_timeout, timeout)
        task = self._connecting
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._connecting = loop.create_task(self._make_connection())
            task.add_done_callback(retrieve)
        done, _ = await asyncio.wait([task], timeout=max(0.0, limit))
        if not done:
            raise Unreached(str(timeout_error(self.address.label, limit)))
        if task.cancelled():  # by `close`, which does not cancel the caller
            raise ClientClosed("this client was closed")
        try:
            return task.result(), time.monotonic() - began
        except StoreUnavailable as error:
            raise Unreached(str(error)) from None

    async def _make_connection(self) -> MemberConnection:
        """Also without a caller: one that stops waiting does not end the attempt for the others.

        The connection is noted before the attempt ends: otherwise a task that asks in between would connect
        once more.
        """
        connection = cast(AsyncConnection, await self._connect(self.address.connect_timeout))
        if self.closed:
            connection.end("this client was closed")
            return connection
        known = [*self._replaced, *([] if self._connection is None else [self._connection])]
        self._replaced = [one for one in known if not one.ended and not one.loop.is_closed()]
        self._connection = connection
        return connection

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _connect_companion(self, companion: ClusterTransport, timeout: float) -> None:
        if not isinstance(companion, BlockingTransport):
            await companion.warm(timeout)
            return
        try:
            await resolver.on_thread(lambda: drive(companion.warm(timeout), nested=True), timeout)
        except TimeoutError:
            raise timeout_error(self.address.label, timeout) from None
        except RuntimeError as error:  # no thread can be started, and the keeper will need one, too
            raise StoreUnavailable(f"{self.address.label}: the keeper cannot connect: {error}") from None

    async def _open(self, endpoint: Endpoint, timeout: float) -> AsyncConnection:
        try:
            async with asyncio.timeout(timeout):
                return await self._opened(endpoint, timeout)
        except InterlockError:
            raise
        except TimeoutError:
            raise unreachable(endpoint.label, f"no answer in {duration(timeout)}") from None
        except OSError as error:
            if self.address.tls is not None:
                self.address.tls.forget()
            raise unreachable(endpoint.label, error) from None

    async def _opened(self, endpoint: Endpoint, timeout: float) -> AsyncConnection:
        loop, tls = asyncio.get_running_loop(), self.address.tls
        found = await _looked_up(endpoint, timeout)
        error: OSError = OSError("its name has no address")
        standard_streams.occupy()
        for *_, target in found:
            try:
                _, connection = await loop.create_connection(
                    lambda: AsyncConnection(endpoint, self._credentials, tls=tls is not None),
                    *target[:2],
                    ssl=None if tls is None else tls.context(),
                    server_hostname=None if tls is None else tls.server_name or endpoint.host,
                )
                return connection
            except OSError as failed:
                error = failed
        raise error

    def after_fork(self) -> None:
        """Keep the parent's loop and sockets unused, so that nothing says goodbye to the server on its
        behalf.
        """
        _parents.append((self._connection, self._replaced, self._connecting))
        self._connection = self._connecting = None
        self._replaced = []
        self._accompanied = False

    async def close(self) -> None:
        self.closed = True
        connections, self._connection, self._replaced = (*self._replaced, self._connection), None, []
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        for connection in connections:
            if connection is not None and not connection.loop.is_closed():
                connection.end("this client was closed")
        await asyncio.sleep(0)  # let the transports close their sockets


async def _looked_up(endpoint: Endpoint, timeout: float) -> list[resolver.AddressInfo]:
    """The addresses of a host. Those of a name are looked up on a thread apart: the loop's own threads could
    be used up.
    """
    host, port = endpoint.host, endpoint.port
    if not resolver.named(host) and host != "localhost":
        return [(0, 0, 0, "", (host, port))]
    try:
        return (await resolver.looked_up(host, port, timeout)).addresses()
    except TimeoutError:
        raise
    except OSError as error:
        raise OSError(str(error)) from None


_parents: list[object] = []
