"""Questions for Redis: uncontended pairs, many tasks, hand-off, many leases; beside the peers that are installed."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import redis
import redis.asyncio

from benchmarks import floor, local, ours
from benchmarks.pace import middle, timed
from benchmarks.process import in_another
from benchmarks.question import Case, Measure, Question, when
from benchmarks.redis_server import Bare, bare_protocol, on_server, served, servers, spent, url
from benchmarks.tasks import Opened, in_tasks

TASKS = 64


def questions() -> list[Question]:
    return [
        Question(
            "redis-pair",
            "A1: uncontended acquire+release on Redis, sync",
            [
                Case("bare SET NX + EVALSHA", _bare_pair),
                Case("interlock's scripts, bare", on_server(_floor_pair)),
                Case("interlock", on_server(lambda port: ours.pair(url(port)))),
                Case("redis-py Lock", on_server(_redis_py_pair)),
                *when("redis_lock", Case("python-redis-lock", on_server(_redis_lock_pair))),
                *when("pottery", Case("pottery", on_server(_pottery_pair))),
            ],
            goal=2.0,
        ),
        Question(
            "redis-pair-async",
            "A2: uncontended acquire+release on Redis, asyncio, one task",
            _async_cases(1),
            goal=1.6,
        ),
        Question(
            "redis-tasks",
            f"A3: acquire+release on Redis, asyncio, {TASKS} tasks on {TASKS} locks, for one pair",
            _async_cases(TASKS),
            goal=2.5,
        ),
        Question(
            "redis-handoff",
            "B: hand-off on Redis to a waiter in another process (release called -> waiter has it)",
            [
                Case("bare script + BLPOP", _bare_handoff),
                Case("interlock", _handoff(_INTERLOCK)),
                Case("redis-py Lock", _handoff(_REDIS_PY)),
                *when("redis_lock", Case("python-redis-lock", _handoff(_REDIS_LOCK))),
            ],
            goal=1.8,
            rounds=9,
        ),
        Question(
            "redis-handoff-local",
            "B: hand-off on Redis within one client (release called -> waiter has it)",
            [
                Case("bare script + BLPOP", _bare_handoff),
                Case("interlock", on_server(lambda port: local.between_threads(url(port)))),
                Case("interlock, tasks", on_server(lambda port: local.between_tasks(url(port)))),
            ],
            goal=50,
            absolute=True,
            rounds=9,
        ),
        Question(
            "redis-held",
            "F: 1,000 leases held for 8 s, renewed every 4 s, Redis: share of a core",
            [
                Case("nothing held", ours.idle),
                Case("interlock", on_server(lambda port: ours.hold(url(port)))),
            ],
            goal=0.5,
            absolute=True,
            unit="%",
            scale=100,
            rounds=2,
            cores=(2,),
        ),
    ]


# ---- A1 -------------------------------------------------------------------------------


@contextmanager
def _bare_pair() -> Iterator[Measure]:
    with served() as server:
        bare = Bare(server.port)
        yield lambda: timed(lambda: bare.pair(b"bench"))
        bare.close()


def _floor_pair(port: int) -> Iterator[Measure]:
    pair, close = floor.on_one(port)
    yield lambda: timed(pair)
    close()


def _redis_py_pair(port: int) -> Iterator[Measure]:
    client = redis.Redis(port=port)

    def pair() -> None:
        lock = client.lock("bench", timeout=30)
        lock.acquire()
        lock.release()

    yield lambda: timed(pair)
    client.close()


def _redis_lock_pair(port: int) -> Iterator[Measure]:
    peer = import_module("redis_lock")
    client = redis.StrictRedis(port=port)

    def pair() -> None:
        lock = peer.Lock(client, "bench", expire=30)
        lock.acquire()
        lock.release()

    yield lambda: timed(pair)
    client.close()


def _pottery_pair(port: int) -> Iterator[Measure]:
    peer = import_module("pottery")
    client = redis.Redis(port=port)

    def pair() -> None:
        lock = peer.Redlock(key="bench", masters={client}, auto_release_time=30)
        lock.acquire()
        lock.release()

    yield lambda: timed(pair, 100)
    client.close()


# ---- A2, A3 -----------------------------------------------------------------------------


def _async_cases(tasks: int) -> list[Case]:
    return [
        Case("bare, multiplexed", _tasks(tasks, _open_bare)),
        Case("interlock's scripts, bare", _tasks(tasks, floor.in_tasks_on_one)),
        Case("interlock", _tasks(tasks, lambda ports: ours.in_tasks(url(ports[0])))),
        Case("redis.asyncio Lock", _tasks(tasks, _open_redis_py, whole=200)),
    ]


def _tasks(
    tasks: int, open_pair: Callable[[list[int]], Awaitable[Opened]], whole: int = 800
) -> Callable[[], AbstractContextManager[Measure]]:
    return in_tasks(tasks, servers(1), open_pair, whole, spent)


async def _open_bare(ports: list[int]) -> Opened:
    bare = await bare_protocol(ports[0])
    return lambda name: bare.pair(name.encode()), bare.close


async def _open_redis_py(ports: list[int]) -> Opened:
    client = redis.asyncio.Redis(port=ports[0])

    async def pair(name: str) -> None:
        lock = client.lock(name, timeout=30)
        await lock.acquire()
        await lock.release()

    return pair, client.aclose


# ---- B ------------------------------------------------------------------------------------

_WAITER = """
import json, sys, time
port = int(sys.argv[1])
{setup}
print("ready", flush=True)
for line in sys.stdin:
    {acquire}
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    {release}
"""
_INTERLOCK = {
    "setup": "import interlock\nclient = interlock.connect(f'redis://127.0.0.1:{port}/0')\n"
    "lock = client.lock('handoff')",
    "acquire": "lock.acquire()",
    "release": "lock.release()",
}
_REDIS_PY = {
    "setup": "import redis\nclient = redis.Redis(port=port)\nlock = client.lock('handoff', timeout=30)",
    "acquire": "lock.acquire()",
    "release": "lock.release()",
}
_REDIS_LOCK = {
    "setup": "import redis, redis_lock\nclient = redis.StrictRedis(port=port)\n"
    "lock = redis_lock.Lock(client, 'handoff', expire=30)",
    "acquire": "lock.acquire()",
    "release": "lock.release()",
}
SETTLE = 0.004  # seconds after its call in which a waiter has come to wait


def _handoff(words: dict[str, str]) -> Callable[[], Any]:
    program = _WAITER.format(**words)

    def make(port: int) -> Iterator[Measure]:
        scope: dict[str, Any] = {"port": port}
        exec(words["setup"], scope)
        lock = scope["lock"]
        with in_another(program, str(port)) as other:

            def once() -> float:
                lock.acquire()
                other.tell()
                time.sleep(SETTLE)
                released = time.clock_gettime(time.CLOCK_MONOTONIC)
                lock.release()
                return float(json.loads(other.hear())) - released

            yield lambda: middle(once, 30)

    return on_server(make)


_BLPOP = """
import json, sys, time
from benchmarks.redis_server import Bare
bare = Bare(int(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    bare.ask(b"BLPOP", b"waiter", b"0")
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
"""
_MOVE = b"redis.call('SET',KEYS[1],ARGV[1],'PX',30000) return redis.call('RPUSH',KEYS[2],ARGV[1])"


@contextmanager
def _bare_handoff() -> Iterator[Measure]:
    with served() as server, in_another(_BLPOP, str(server.port)) as other:
        bare = Bare(server.port)
        move = bare.ask(b"SCRIPT", b"LOAD", _MOVE)

        def once() -> float:
            other.tell()
            time.sleep(SETTLE)
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            bare.ask(b"EVALSHA", move, b"2", b"handoff", b"waiter", b"id")
            return float(json.loads(other.hear())) - released

        yield lambda: middle(once, 30)
        bare.close()
