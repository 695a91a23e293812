"""A Redis server for one question, and the bare connections that show the limit."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import hiredis

from benchmarks.question import Measure
from benchmarks.rounds import ALL_CORES
from interlock.testing.servers.redis import Server, running

RELEASE = b"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"


@contextmanager
def served() -> Iterator[Server]:
    """A server of this question's own, on the cores this process is pinned to."""
    with running("--appendonly", "no") as server:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(server.pid, os.sched_getaffinity(0) & ALL_CORES)
        yield server


def servers(count: int) -> Callable[[], AbstractContextManager[list[int]]]:
    """The ports of so many servers of this question's own."""

    @contextmanager
    def open() -> Iterator[list[int]]:
        with ExitStack() as stack:
            yield [stack.enter_context(served()).port for _ in range(count)]

    return open


def spent(ports: list[int]) -> float:
    """Seconds of a core that these servers have used so far."""
    total = 0.0
    for port in ports:
        bare = Bare(port)
        total += busy(bare)
        bare.close()
    return total


def on_server(make: Callable[[int], Iterator[Measure]]) -> Callable[[], AbstractContextManager[Measure]]:
    """A case with a server of its own."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with served() as server:
            yield from make(server.port)

    return open


def url(port: int) -> str:
    return f"redis://127.0.0.1:{port}/0"


class Bare:
    """A socket and a parser: what any client must at least do."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self.release = self.ask(b"SCRIPT", b"LOAD", RELEASE)

    def ask(self, *words: bytes) -> Any:
        self.send(*words)
        return self.read()

    def send(self, *words: bytes) -> None:
        self.send_encoded(hiredis.pack_command(words))  # type: ignore[arg-type]

    def send_encoded(self, request: bytes) -> None:
        self._socket.sendall(request)

    def read(self) -> Any:
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return answer

    def pair(self, name: bytes) -> None:
        self.ask(b"SET", name, b"0123456789abcdef", b"NX", b"PX", b"30000")
        self.ask(b"EVALSHA", self.release, b"1", name, b"0123456789abcdef")

    def close(self) -> None:
        self._socket.close()


def calls(bare: Bare) -> dict[str, int]:
    """How often each command was called so far, by clients and by scripts."""
    lines = bare.ask(b"INFO", b"commandstats").decode().splitlines()
    rows = [line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_")]
    return {name: int(rest.split(",")[0]) for name, rest in rows}


def busy(bare: Bare) -> float:
    """Seconds of a core the server used so far."""
    lines = bare.ask(b"INFO", b"cpu").decode().splitlines()
    return sum(
        float(line.split(":")[1]) for line in lines if line.startswith(("used_cpu_user:", "used_cpu_sys:"))
    )


class BareProtocol(asyncio.Protocol):
    """One multiplexed connection: replies in order, the writes of one turn of the loop in one send."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.release = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(answer)

    def ask(self, *words: bytes) -> asyncio.Future[Any]:
        return self.ask_encoded(hiredis.pack_command(words))  # type: ignore[arg-type]

    def ask_encoded(self, request: bytes, replies: int = 1) -> asyncio.Future[Any]:
        """Send a request of one or more commands; the future gets the reply to the first of them."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(request)
        waiter: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.extend([waiter] * replies)
        return waiter

    def _flush(self) -> None:
        assert self._transport is not None
        out, self._out = self._out, []
        self._transport.write(b"".join(out))

    async def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    async def pair(self, name: bytes) -> None:
        await self.ask(b"SET", name, b"0123456789abcdef", b"NX", b"PX", b"30000")
        await self.ask(b"EVALSHA", self.release, b"1", name, b"0123456789abcdef")


async def bare_protocol(port: int) -> BareProtocol:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(BareProtocol, "127.0.0.1", port)
    protocol.release = await protocol.ask(b"SCRIPT", b"LOAD", RELEASE)
    return protocol
