"""Nodes that are far away: a way to each of several servers on which every byte takes its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from interlock.testing.servers.redis import Server
from tests.patience import PATIENCE


class Way(asyncio.Protocol):
    """One end of a connection: what it reads, the other end writes half a round trip later."""

    def __init__(self, far: Far) -> None:
        self._far = far
        self.other: Way | None = None
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []  # what came before the other end was there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._far.ways.add(self)
        for data in self._early:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._far.round_trip / 2, self._pass, data)

    def _pass(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._far.ways.discard(self)
        if self.other is not None:
            self.other.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Far:
    """The servers as they are seen from far away, `round_trip` seconds off; that can be changed at any time."""

    def __init__(self, servers: Sequence[Server], round_trip: float) -> None:
        self.round_trip = round_trip
        self._ports = [server.port for server in servers]
        self.ports: list[int] = []
        self.ways: set[Way] = set()
        self._listening: list[asyncio.Server] = []
        self._connecting: set[asyncio.Task[object]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    def url(self, prefix: str = "", **options: object) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redlock://{hosts}/0?prefix={prefix}{query}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._hang_up())
        self._loop.close()

    async def _listen(self) -> None:
        for port in self._ports:
            listening = await self._loop.create_server(partial(self._met, port), "127.0.0.1", 0)
            self._listening.append(listening)
            self.ports.append(listening.sockets[0].getsockname()[1])

    def _met(self, port: int) -> Way:
        near, beyond = Way(self), Way(self)
        near.other, beyond.other = beyond, near
        task = self._loop.create_task(self._loop.create_connection(lambda: beyond, "127.0.0.1", port))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return near

    async def _hang_up(self) -> None:
        for listening in self._listening:
            listening.close()
        for task in self._connecting:
            task.cancel()
        for way in list(self.ways):
            way.close()
        await asyncio.sleep(0.01)  # for the transports to close their sockets

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)


@contextmanager
def far_away(servers: Sequence[Server], round_trip: float) -> Iterator[Far]:
    far = Far(servers, round_trip)
    try:
        yield far
    finally:
        far.close()
