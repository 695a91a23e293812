"""Those who contend for one lock, in a process of their own: told when, they answer who held it at which instants."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import redis

import interlock
import interlock.aio
from benchmarks.redis_server import BareProtocol, bare_protocol

APART = 0.001  # seconds between one contender's start and the next, so that processes alternate in the queue
NAME = "contended"

Note = Callable[[float], object]
Turn = Callable[[int, Note], None]
AsyncTurn = Callable[[int, Note], Awaitable[None]]

# KEYS 1 holder  2 queue  ARGV 1 "channel number".  Returns 1 taken, 0 in the queue
TAKE = b"""
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0
"""
# KEYS and ARGV as above. Returns 1; whoever comes next owns the lock already when it is told
MOVE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local head = redis.call('LPOP', KEYS[2])
if not head then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], head, 'PX', 30000)
redis.call('PUBLISH', string.match(head, '^%S+'), head)
return 1
"""


def serve(kind: str, port: str, process: str, processes: str, count: str) -> None:
    """Contend whenever told: a line [begin, end] of instants, answered by a list of instants for each contender."""
    asked = _schedules(int(process), int(processes), int(count))
    if kind in TASKS:
        asyncio.run(_serve_tasks(TASKS[kind], int(port), asked))
    else:
        _serve_threads(THREADS[kind], int(port), int(count), asked)


Schedules = Callable[[], list[tuple[float, float]] | None]


def _schedules(process: int, processes: int, count: int) -> Schedules:
    """When each contender begins and ends, for the next line that comes; None after the last."""

    def read() -> list[tuple[float, float]] | None:
        line = sys.stdin.readline()
        if not line:
            return None
        begin, end = json.loads(line)
        return [(begin + (number * processes + process) * APART, end) for number in range(count)]

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return read


def _answer(instants: list[list[float]]) -> None:
    sys.stdout.write(json.dumps(instants) + "\n")
    sys.stdout.flush()


# ---- tasks ------------------------------------------------------------------------------


async def _serve_tasks(open: Callable[[int], Awaitable[AsyncTurn]], port: int, schedules: Schedules) -> None:
    turn = await open(port)

    async def contend(number: int, begin: float, end: float) -> list[float]:
        instants: list[float] = []
        await asyncio.sleep(max(0.0, begin - time.monotonic()))
        while time.monotonic() < end:
            await turn(number, instants.append)
        return instants

    while (asked := await asyncio.to_thread(schedules)) is not None:
        _answer(await asyncio.gather(*(contend(n, begin, end) for n, (begin, end) in enumerate(asked))))


class Pushes(BareProtocol):
    """The subscription of one process: sets the future that the message names."""

    def __init__(self) -> None:
        super().__init__()
        self.due: dict[bytes, asyncio.Future[None]] = {}

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (message := self._reader.gets()) is not False:
            if message[0] == b"message":
                self.due[message[2]].set_result(None)
            else:
                self._waiting.popleft().set_result(message)


async def _open_pushed(port: int) -> AsyncTurn:
    """The limit: two scripts on one multiplexed connection, grants on another."""
    loop = asyncio.get_running_loop()
    bare = await bare_protocol(port)
    _, pushes = await loop.create_connection(Pushes, "127.0.0.1", port)
    channel = b"to-%d" % time.monotonic_ns()
    await pushes.ask(b"SUBSCRIBE", channel)
    take, move = [await bare.ask(b"SCRIPT", b"LOAD", script) for script in (TAKE, MOVE)]

    async def turn(number: int, note: Note) -> None:
        id = b"%s %d" % (channel, number)
        due = pushes.due[id] = loop.create_future()  # before the question: the grant may overtake its reply
        if not await bare.ask(b"EVALSHA", take, b"2", b"contended", b"queue", id):
            await due
        note(time.monotonic())
        gone = await bare.ask(b"EVALSHA", move, b"2", b"contended", b"queue", id)
        assert gone == 1, gone

    return turn


async def _open_interlock(port: int) -> AsyncTurn:
    client = interlock.aio.connect(f"redis://127.0.0.1:{port}/0")

    async def turn(number: int, note: Note) -> None:
        lock = client.lock(NAME)
        await lock.acquire()
        note(time.monotonic())
        await lock.release()

    return turn


# ---- threads ----------------------------------------------------------------------------


def _serve_threads(open: Callable[[int], Turn], port: int, count: int, schedules: Schedules) -> None:
    turn = open(port)

    def contend(number: int, schedule: tuple[float, float]) -> list[float]:
        begin, end = schedule
        instants: list[float] = []
        time.sleep(max(0.0, begin - time.monotonic()))
        while time.monotonic() < end:
            turn(number, instants.append)
        return instants

    with ThreadPoolExecutor(count) as pool:
        while (asked := schedules()) is not None:
            _answer(list(pool.map(contend, range(count), asked)))


def _threaded(make: Callable[[], Any]) -> Turn:
    def turn(number: int, note: Note) -> None:
        lock = make()
        lock.acquire()
        note(time.monotonic())
        lock.release()

    return turn


def _interlock_threads(port: int) -> Turn:
    client = interlock.connect(f"redis://127.0.0.1:{port}/0")
    return _threaded(lambda: client.lock(NAME))


def _redis_py(port: int) -> Turn:
    client = redis.Redis(port=port)
    return _threaded(lambda: client.lock(NAME, timeout=30))


def _redis_lock(port: int) -> Turn:
    peer, client = import_module("redis_lock"), redis.Redis(port=port)
    return _threaded(lambda: peer.Lock(client, NAME, expire=30))


TASKS: dict[str, Callable[[int], Awaitable[AsyncTurn]]] = {
    "pushed": _open_pushed,
    "interlock": _open_interlock,
}
THREADS: dict[str, Callable[[int], Turn]] = {
    "interlock-threads": _interlock_threads,
    "redis-py": _redis_py,
    "redis-lock": _redis_lock,
}
