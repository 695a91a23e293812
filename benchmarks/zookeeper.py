"""What a lock costs on a ZooKeeper ensemble of three, beside the bare calls of kazoo, kazoo's own Lock and tooz.

The limit of a pair is what any lock on ZooKeeper must at least do through kazoo: make an ephemeral, sequential node and delete it. A lock must also
look who else is there, so nobody reaches it.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any
from uuid import uuid4

from benchmarks import ours
from benchmarks.ours import SETTLE, on
from benchmarks.pace import middle, timed
from benchmarks.process import in_another
from benchmarks.question import Case, Measure, Question, when
from benchmarks.tasks import in_tasks


@cache
def _follower() -> str:
    """The address of one follower of an ensemble of three. All cases ask the same server: the leader answers a write sooner than the others do."""
    from interlock.testing.servers.zookeeper import Ensemble

    ensemble = Ensemble()
    atexit.register(ensemble.close)
    ensemble.start()
    return f"127.0.0.1:{ensemble.follower().port}"


@contextmanager
def served() -> Iterator[str]:
    """A place of its own for each case."""
    yield f"zookeeper://{_follower()}/{uuid4().hex}?session_timeout=30"


@contextmanager
def hosts() -> Iterator[str]:
    yield _follower()


def _kazoo(addresses: str) -> Any:
    client: Any = import_module("kazoo.client").KazooClient(hosts=addresses, timeout=30.0)
    client.start()
    return client


def bare_pair(addresses: str) -> Iterator[Measure]:
    client = _kazoo(addresses)
    client.ensure_path("/bare/x")
    try:

        def once() -> None:
            client.delete(client.create("/bare/x/node-", b"", ephemeral=True, sequence=True))

        yield lambda: timed(once)
    finally:
        client.stop()
        client.close()


def lock_pair(addresses: str) -> Iterator[Measure]:
    client = _kazoo(addresses)
    try:

        def once() -> None:
            lock = client.Lock("/locks/x")
            lock.acquire()
            lock.release()

        yield lambda: timed(once)
    finally:
        client.stop()
        client.close()


def tooz_pair(addresses: str) -> Iterator[Measure]:
    coordination = import_module("tooz.coordination")

    coordinator: Any = coordination.get_coordinator(f"kazoo://{addresses}?timeout=30", b"bench")
    coordinator.start()
    try:

        def once() -> None:
            lock = coordinator.get_lock(b"x")
            lock.acquire()
            lock.release()

        yield lambda: timed(once)
    finally:
        coordinator.stop()


async def bare_in_tasks(addresses: str) -> Any:
    """kazoo's own calls, bridged to the loop as interlock does it: no thread of an executor between."""
    import asyncio

    client, loop = _kazoo(addresses), asyncio.get_running_loop()

    async def result(answer: Any) -> Any:
        future: asyncio.Future[Any] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(answer)

        def tell(_: Any) -> None:
            loop.call_soon_threadsafe(settle)

        answer.rawlink(tell)
        await future
        return answer.get(block=False)

    async def once(name: str) -> None:
        made = client.create_async(f"/bare/{name}/n-", b"", ephemeral=True, sequence=True, makepath=True)
        await result(client.delete_async(await result(made)))

    async def close() -> None:
        client.stop()
        client.close()

    return once, close


# ---- hand-off to another process -------------------------------------------------------------

LOCK_WAITER = """
import json, sys, time
from kazoo.client import KazooClient
client = KazooClient(hosts=sys.argv[1], timeout=30.0)
client.start()
lock = client.Lock("/locks/handoff")
print("ready", flush=True)
for line in sys.stdin:
    lock.acquire()
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    lock.release()
"""


def lock_handoff(addresses: str) -> Iterator[Measure]:
    """The same as `ours.handoff`, with kazoo's own Lock on both sides."""
    client = _kazoo(addresses)
    try:
        with in_another(LOCK_WAITER, addresses) as other:
            lock = client.Lock("/locks/handoff")

            def once() -> float:
                lock.acquire()
                other.tell()
                deadline = time.monotonic() + 10
                while len(client.get_children("/locks/handoff")) < 2:
                    assert time.monotonic() < deadline, "the waiter never came"
                time.sleep(SETTLE)
                released = time.clock_gettime(time.CLOCK_MONOTONIC)
                lock.release()
                return float(json.loads(other.hear())) - released

            yield lambda: middle(once, 60)
    finally:
        client.stop()
        client.close()


def questions() -> list[Question]:
    return [
        Question(
            "zookeeper-pair",
            "E: uncontended acquire+release on ZooKeeper, an ensemble of three",
            [
                Case("kazoo create + delete", on(hosts, bare_pair)),
                Case("interlock", on(served, ours.pair)),
                Case("kazoo Lock", on(hosts, lock_pair)),
                *when("tooz", Case("tooz", on(hosts, tooz_pair))),
            ],
            goal=1.3,
        ),
        Question(
            "zookeeper-handoff",
            "H: from release to a waiter in another process, on ZooKeeper",
            [Case("kazoo Lock", on(hosts, lock_handoff)), Case("interlock", on(served, ours.handoff))],
            goal=1.0,
        ),
        Question(
            "zookeeper-tasks",
            "E: acquire+release on ZooKeeper, 64 tasks on 64 locks, for one pair",
            [
                Case("kazoo create + delete, bridged", in_tasks(64, hosts, bare_in_tasks)),
                Case("interlock", in_tasks(64, served, ours.in_tasks)),
            ],
        ),
    ]
