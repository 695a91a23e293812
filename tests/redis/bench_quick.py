"""A quick look at speed, as ratios to the bare commands in the same run: python -m tests.redis.bench_quick

Questions A1 (pair, blocking), A2 (asyncio, one task), A3 (64 tasks on 64 locks), B (hand-off to another process) and
C (hand-offs a second between processes). Client and server share one core unless --two is given.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from typing import Any

import interlock
from interlock import aio
from interlock.backends.redis.resp import command, reader
from tests.redis.server import Server, running

ROUNDS = 7
RELEASE = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


class Bare:
    """The limit: the two commands of a lock on a socket."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = reader()
        sha = self.ask(command(b"SCRIPT", b"LOAD", RELEASE))
        self.take, self.give = pair(sha, b"bare")

    def ask(self, request: bytes) -> Any:
        self._sock.sendall(request)
        while True:
            self._reader.feed(self._sock.recv(65536))
            if (reply := self._reader.gets()) is not False:
                return reply

    def pairs(self, count: int) -> None:
        for _ in range(count):
            self.ask(self.take)
            self.ask(self.give)


def pair(sha: bytes, name: bytes) -> tuple[bytes, bytes]:
    take = command(b"SET", name, b"0123456789abcdef0123", b"NX", b"PX", b"30000")
    return take, command(b"EVALSHA", sha, b"1", name, b"0123456789abcdef0123")


class BareLink(asyncio.Protocol):
    """The limit of asyncio: one connection, one send per turn of the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader, self.pending, self.out = reader(), deque[asyncio.Future[Any]](), list[bytes]()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.pending.popleft().set_result(reply)

    def ask(self, request: bytes) -> asyncio.Future[Any]:
        if not self.out:
            self.loop.call_soon(self.flush)
        self.out.append(request)
        reply: asyncio.Future[Any] = self.loop.create_future()
        self.pending.append(reply)
        return reply

    def flush(self) -> None:
        self.transport.write(b"".join(self.out))
        self.out.clear()


def spent(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def spent_async(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def told(question: str, ours: list[float], limits: list[float], count: int, unit: float = 1e6) -> None:
    ratio = statistics.median(a / b for a, b in zip(ours, limits, strict=True))
    us, limit = statistics.median(ours) / count * unit, statistics.median(limits) / count * unit
    print(f"{question:<4} {ratio:5.2f} x   {us:8.1f} us, the limit {limit:8.1f} us", flush=True)


def ask_a1(server: Server, count: int = 3000) -> None:
    bare, client = Bare(server.port), interlock.connect(server.url())
    ours, limits = list[float](), list[float]()

    def pairs() -> None:
        for _ in range(count):
            with client.lock("a1"):
                pass

    for _ in range(ROUNDS):
        limits.append(spent(lambda: bare.pairs(count)))
        ours.append(spent(pairs))
    told("A1", ours, limits, count)
    client.close()


async def ask_a(server: Server, question: str, tasks: int, count: int) -> None:
    _, link = await asyncio.get_running_loop().create_connection(BareLink, "127.0.0.1", server.port)
    sha = await link.ask(command(b"SCRIPT", b"LOAD", RELEASE))
    client = aio.connect(server.url())
    ours, limits = list[float](), list[float]()

    async def bare(n: int) -> None:
        take, give = pair(sha, b"bare-%d" % n)
        for _ in range(count):
            await link.ask(take)
            await link.ask(give)

    async def lock(n: int) -> None:
        for _ in range(count):
            async with client.lock(f"lock-{n}"):
                pass

    for _ in range(ROUNDS):
        limits.append(await spent_async(lambda: asyncio.gather(*[bare(n) for n in range(tasks)])))
        ours.append(await spent_async(lambda: asyncio.gather(*[lock(n) for n in range(tasks)])))
    told(question, ours, limits, count * tasks)
    await client.close()
    link.transport.close()


# ---- hand-offs ------------------------------------------------------------------


def wait_bare(port: int, turns: int, times: Any) -> None:
    bare = Bare(port)
    for n in range(turns):
        bare.ask(command(b"BLPOP", b"turn-%d" % n, b"30"))
        times.put(time.monotonic())


def wait_ours(url: str, turns: int, times: Any, ready: Any) -> None:
    client = interlock.connect(url)
    for n in range(turns):
        ready.get()
        with client.lock(f"turn-{n}", timeout=30):
            times.put(time.monotonic())
    client.close()


def ask_b(server: Server, turns: int = 200) -> None:
    context = get_context("spawn")
    bare, client = Bare(server.port), interlock.connect(server.url())
    probe = Bare(server.port)
    hand = b"redis.call('SET',KEYS[1],ARGV[1],'PX',30000) redis.call('RPUSH',KEYS[2],'1') return 1"
    sha = bare.ask(command(b"SCRIPT", b"LOAD", hand))
    times, ready = context.Queue(), context.Queue()
    waiter = context.Process(target=wait_bare, args=(server.port, turns, times))
    waiter.start()
    limits: list[float] = []
    for n in range(turns):
        until(lambda: b"cmd=blpop" in probe.ask(command(b"CLIENT", b"LIST")))
        time.sleep(0.002)
        began = time.monotonic()
        bare.ask(command(b"EVALSHA", sha, b"2", b"owner", b"turn-%d" % n, b"me"))
        limits.append(times.get() - began)
    waiter.join()
    waiter = context.Process(target=wait_ours, args=(server.url(), turns, times, ready))
    waiter.start()
    ours: list[float] = []
    for n in range(turns):
        lease = client.lock(f"turn-{n}").acquire()
        assert lease
        ready.put(1)
        until(lambda n=n: len(client.inspect(f"turn-{n}").waiters) == 1)  # type: ignore[misc]
        time.sleep(0.005)
        began = time.monotonic()
        lease.release()
        ours.append(times.get() - began)
    waiter.join()
    client.close()
    ours, limits = ours[10:], limits[10:]
    ratio = statistics.median(ours) / statistics.median(limits)
    p99 = sorted(ours)[int(len(ours) * 0.99)]
    print(
        f"B    {ratio:5.2f} x   {statistics.median(ours) * 1e3:.3f} ms (p99 {p99 * 1e3:.2f}), "
        f"the limit {statistics.median(limits) * 1e3:.3f} ms",
        flush=True,
    )


def until(fact: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.001)


def contend(url: str, seconds: float, counts: Any) -> None:
    client = interlock.connect(url)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with client.lock("contended"):
            count += 1
    counts.put(count)
    client.close()


def ask_c(server: Server, contenders: int, seconds: float = 3.0) -> None:
    context = get_context("spawn")
    counts = context.Queue()
    processes = [
        context.Process(target=contend, args=(server.url(), seconds, counts)) for _ in range(contenders)
    ]
    for process in processes:
        process.start()
    each = [counts.get() for _ in processes]
    for process in processes:
        process.join()
    jain = sum(each) ** 2 / (len(each) * sum(n * n for n in each))
    print(
        f"C    {sum(each) / seconds:7.0f} hand-offs/s among {contenders} processes, Jain {jain:.3f}",
        flush=True,
    )


def main() -> None:
    if "--two" not in sys.argv:
        os.sched_setaffinity(0, {0})
    wanted = {arg for arg in sys.argv[1:] if not arg.startswith("-")} or {"A1", "A2", "A3", "B", "C"}
    with running() as server:
        if "A1" in wanted:
            ask_a1(server)
        if "A2" in wanted:
            asyncio.run(ask_a(server, "A2", 1, 2000))
        if "A3" in wanted:
            asyncio.run(ask_a(server, "A3", 64, 60))
        if "B" in wanted:
            ask_b(server)
        if "C" in wanted:
            ask_c(server, 2)
            ask_c(server, 8)


if __name__ == "__main__":
    main()
