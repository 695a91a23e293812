"""Questions D1 and D2: Redlock on five servers, all well or one of them hung."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module

import redis
import redis.asyncio

import interlock
from benchmarks import floor, ours, pace
from benchmarks.pace import timed
from benchmarks.question import Case, Figure, Measure, Question, when
from benchmarks.redis_server import Bare, bare_protocol, busy, calls, served, servers, spent
from benchmarks.tasks import Opened, in_tasks

SERVERS, TASKS = 5, 64
GIVE_UP = 3.0  # seconds after which a pair that hangs is let go
ID = b"0123456789abcdef"
OURS, BARE, REDLOCK_PY = (
    ("evalsha", "eval", "time"),
    ("set", "evalsha"),
    ("set", "eval"),
)  # what clients send in a pair

OpenPair = Callable[[list[int], ExitStack], Callable[[], object]]


def questions() -> list[Question]:
    return [
        Question(
            "redlock-pair",
            "D1: uncontended acquire+release on five servers, sync",
            [
                Case("bare, send all, read all", _five(_bare, BARE)),
                Case("interlock's requests, bare", _five(floor.on_five, OURS)),
                Case("interlock", _five(_interlock, OURS)),
                *when("redlock", Case("redlock-py", _five(_redlock_py, REDLOCK_PY, 100))),
                *when("pottery", Case("pottery", _five(_pottery, (), 40))),
            ],
            goal=1.6,
        ),
        Question(
            "redlock-tasks",
            f"D2: acquire+release on five servers, asyncio, {TASKS} tasks on {TASKS} locks, for one pair",
            [
                Case("bare, five multiplexed", _tasks(_open_bare)),
                Case("interlock's requests, bare", _tasks(floor.in_tasks_on_five)),
                Case("interlock", _tasks(lambda ports: ours.in_tasks(_url(ports)))),
                *when("aioredlock", Case("aioredlock", _tasks(_open_aioredlock, 128))),
                *when("pottery", Case("pottery", _tasks(_open_pottery, 128))),
            ],
            goal=3.0,
        ),
        _hung_question(),
    ]


def _hung_question() -> Question:
    return Question(
        "redlock-hung",
        "D1: the same with one of five servers hung, beside all five well",
        [
            Case("interlock, five well", _five(_interlock, OURS)),
            Case("interlock", _hung(_interlock)),
            *when("redlock", Case("redlock-py", _hung(_redlock_py, patient=False))),
            *when("pottery", Case("pottery", _hung(_pottery, patient=False))),
        ],
        goal=1.5,
        unit="ms",
        scale=1e3,
        rounds=5,
        note=f"a peer's pair that takes {GIVE_UP:g} s counts as {GIVE_UP:g} s and is let go",
    )


def _url(ports: list[int]) -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)


# ---- sync -------------------------------------------------------------------------------


def _five(
    open_pair: OpenPair, requests: tuple[str, ...], whole: int = pace.PAIRS
) -> Callable[[], AbstractContextManager[Measure]]:
    """A case on five servers of its own; with how many of these requests a server gets for one pair."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with ExitStack() as stack:
            ports = [stack.enter_context(served()).port for _ in range(SERVERS)]
            probes = [Bare(port) for port in ports]
            pair = open_pair(ports, stack)

            def asked() -> int:
                return sum(calls(probe).get(name, 0) for probe in probes for name in requests)

            def busy_so_far() -> float:
                return 1e6 * sum(busy(probe) for probe in probes)

            def measure() -> float:
                pairs, before, idle = pace.times(whole), asked(), busy_so_far()
                took = timed(pair, whole)
                micros = (busy_so_far() - idle) / pairs
                if not requests:
                    return Figure(took, µs_of_all_servers=micros)
                each = (asked() - before) / SERVERS / pairs
                return Figure(took, requests_a_server=each, µs_of_all_servers=micros)

            yield measure
            for probe in probes:
                probe.close()

    return open


def _hung(open_pair: OpenPair, patient: bool = True) -> Callable[[], AbstractContextManager[Measure]]:
    """A case on five servers, one of which accepts connections and answers nothing."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with ExitStack() as stack:
            servers = [stack.enter_context(served()) for _ in range(SERVERS)]
            pair = open_pair([server.port for server in servers], stack)
            pair()  # connections were made while all was well
            hung = servers[2]
            stack.enter_context(hung.frozen())
            yield (lambda: timed(pair, 100)) if patient else (lambda: _bounded(pair, hung.pid))

    return open


def _bounded(pair: Callable[[], object], hung: int) -> float:
    """What one pair takes; after `GIVE_UP` the server is let go on, so that the pair can end."""
    took: list[float] = []
    thread = threading.Thread(target=lambda: took.append(timed(pair, 1)), daemon=True)
    thread.start()
    thread.join(GIVE_UP)
    if not thread.is_alive():
        return took[0]
    os.kill(hung, signal.SIGCONT)
    thread.join(60)
    os.kill(hung, signal.SIGSTOP)
    return GIVE_UP


def _bare(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    five = [Bare(port) for port in ports]
    for bare in five:
        stack.callback(bare.close)

    def all_of_them(*words: bytes) -> None:
        for bare in five:
            bare.send(*words)
        for bare in five:
            bare.read()

    def pair() -> None:
        all_of_them(b"SET", b"bench", ID, b"NX", b"PX", b"30000")
        all_of_them(b"EVALSHA", five[0].release, b"1", b"bench", ID)

    return pair


def _interlock(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    client = stack.enter_context(interlock.connect(_url(ports)))

    def pair() -> None:
        lock = client.lock("bench")
        lock.acquire()
        lock.release()

    return pair


def _redlock_py(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    peer = import_module("redlock").Redlock([{"host": "127.0.0.1", "port": port} for port in ports])
    return lambda: peer.unlock(peer.lock("bench", 30_000))


def _pottery(ports: list[int], stack: ExitStack) -> Callable[[], object]:
    peer, masters = import_module("pottery"), {redis.Redis(port=port) for port in ports}

    def pair() -> None:
        lock = peer.Redlock(key="bench", masters=masters, auto_release_time=30)
        lock.acquire()
        lock.release()

    return pair


# ---- asyncio ----------------------------------------------------------------------------


def _tasks(
    open_pair: Callable[[list[int]], Awaitable[Opened]], whole: int = 800
) -> Callable[[], AbstractContextManager[Measure]]:
    return in_tasks(TASKS, servers(SERVERS), open_pair, whole, spent)


async def _open_bare(ports: list[int]) -> Opened:
    five = [await bare_protocol(port) for port in ports]

    async def pair(name: str) -> None:
        key = name.encode()
        for reply in [bare.ask(b"SET", key, ID, b"NX", b"PX", b"30000") for bare in five]:
            await reply
        for reply in [bare.ask(b"EVALSHA", bare.release, b"1", key, ID) for bare in five]:
            await reply

    async def close() -> None:
        for bare in five:
            await bare.close()

    return pair, close


async def _open_aioredlock(ports: list[int]) -> Opened:
    peer = import_module("aioredlock").Aioredlock([{"host": "127.0.0.1", "port": port} for port in ports])

    async def pair(name: str) -> None:
        await peer.unlock(await peer.lock(name))

    return pair, peer.destroy


async def _open_pottery(ports: list[int]) -> Opened:
    peer = import_module("pottery")
    masters = {redis.asyncio.Redis(port=port) for port in ports}

    async def pair(name: str) -> None:
        lock = peer.AIORedlock(key=name, masters=masters, auto_release_time=30)
        await lock.acquire()
        await lock.release()

    async def close() -> None:
        for master in masters:
            await master.aclose()

    return pair, close
