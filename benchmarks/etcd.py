"""What a lock costs on an etcd cluster of three, beside the bare requests over the same transport, and beside etcd3 and tooz.

The limit of a pair is what any lock on etcd must at least do: one Txn that creates a key under a lease if it does not exist, and one that deletes it.
The limit of a hand-off is a key that is deleted, and a process that watches it. The peers are given the leader, as interlock finds it.
aetcd cannot be installed beside etcd3 (they need different versions of protobuf), and pyetcd speaks only etcd's API of version 2.
"""

from __future__ import annotations

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
from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.algorithm.keeping import fresh_lease
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import (
    GRANT,
    TXN,
    LeaseAnswer,
    compare_create_revision,
    delete_op,
    put,
    put_op,
    txn,
)


@cache
def _cluster() -> Any:
    from interlock.testing.servers.etcd import steady

    return steady()


@contextmanager
def served() -> Iterator[str]:
    """One cluster for all cases, so that they are measured on the same servers; a prefix of its own for each."""
    yield _cluster().url(f"{uuid4().hex}/")


@contextmanager
def hosts() -> Iterator[str]:
    """The members, and the leader first."""
    leader = _cluster().leader()
    yield ",".join(f"127.0.0.1:{m.port}" for m in (leader, *_cluster().followers()))


def address(hosts: str) -> Address:
    return Address(
        tuple(Endpoint(host, int(port)) for host, port in (host.split(":") for host in hosts.split(",")))
    )


def bare_requests(lease: int, name: str) -> tuple[bytes, bytes]:
    """The Txn that creates a key under a lease, and the one that deletes it."""
    key = f"bare/{name}/{uuid4().hex}".encode()
    return txn([compare_create_revision(key, 0)], [put_op(put(key, b"x" * 100, lease))]), txn(
        [], [delete_op(key)]
    )


def bare_pair(hosts: str) -> Iterator[Measure]:
    transport = BlockingTransport(address(hosts), Credentials("", ""))
    grant = messages.grant(600, fresh_lease())
    lease = LeaseAnswer(drive(transport.ask(GRANT, grant, 5.0), nested=True)).lease
    try:

        def once() -> None:
            enter, leave = bare_requests(lease, "x")
            drive(transport.ask(TXN, enter, 5.0), nested=True)
            drive(transport.ask(TXN, leave, 5.0), nested=True)

        yield lambda: timed(once)
    finally:
        drive(transport.close(), nested=True)


async def bare_in_tasks(hosts: str) -> Any:
    from interlock.backends.etcd.transport.aio import AsyncTransport

    transport = AsyncTransport(address(hosts), Credentials("", ""))
    lease = LeaseAnswer(await transport.ask(GRANT, messages.grant(600, fresh_lease()), 5.0)).lease

    async def once(name: str) -> None:
        enter, leave = bare_requests(lease, name)
        await transport.ask(TXN, enter, 5.0)
        await transport.ask(TXN, leave, 5.0)

    return once, transport.close


BARE_WATCHER = """
import json, sys, time
from benchmarks.etcd import address
from interlock._core.drive import drive
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.watching import Watched
transport = BlockingTransport(address(sys.argv[1]), Credentials("", ""))
connection, _ = drive(transport.connection(5.0), nested=True)
print("ready", flush=True)
for _ in sys.stdin:
    group = drive(connection.open_watches([Watched(b"bare/handoff", only_deletions=True)], 5.0), nested=True)
    print("watching", flush=True)
    drive(connection.changed(group, 10.0), nested=True)
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    connection.close_watches(group)
"""


def bare_handoff(hosts: str) -> Iterator[Measure]:
    """From the deletion of a key to the process that watches it."""
    transport = BlockingTransport(address(hosts), Credentials("", ""))
    key = b"bare/handoff"
    try:
        with in_another(BARE_WATCHER, hosts) as other:

            def once() -> float:
                drive(transport.ask(TXN, txn([], [put_op(put(key, b"x"))]), 5.0), nested=True)
                other.tell()
                assert other.hear().strip() == "watching"
                time.sleep(SETTLE)
                released = time.clock_gettime(time.CLOCK_MONOTONIC)
                drive(transport.ask(TXN, txn([], [delete_op(key)]), 5.0), nested=True)
                return float(json.loads(other.hear())) - released

            yield lambda: middle(once, 60)
    finally:
        drive(transport.close(), nested=True)


def etcd3_pair(hosts: str) -> Iterator[Measure]:
    etcd3: Any = import_module("etcd3")

    host, _, port = hosts.split(",")[0].partition(":")
    client: Any = etcd3.client(host=host, port=int(port))
    try:

        def once() -> None:
            lock = client.lock("bench", ttl=30)
            assert lock.acquire()
            lock.release()

        yield lambda: timed(once)
    finally:
        client.close()


def tooz_pair(hosts: str) -> Iterator[Measure]:
    coordination: Any = import_module("tooz.coordination")
    coordinator = coordination.get_coordinator(f"etcd3+http://{hosts.split(',')[0]}", b"bench")
    coordinator.start(start_heart=True)
    try:

        def once() -> None:
            lock = coordinator.get_lock(b"bench")
            assert lock.acquire()
            lock.release()

        yield lambda: timed(once)
    finally:
        coordinator.stop()


def questions() -> list[Question]:
    return [
        Question(
            "etcd-pair",
            "E: uncontended acquire+release on etcd, a cluster of three",
            [
                Case("Txn that creates + Txn that deletes", on(hosts, bare_pair)),
                Case("interlock", on(served, ours.pair)),
                *when("etcd3", Case("etcd3 Lock", on(hosts, etcd3_pair))),
                *when("etcd3gw", Case("tooz", on(hosts, tooz_pair))),
            ],
            goal=1.15,
        ),
        Question(
            "etcd-handoff",
            "H: from release to a waiter in another process, on etcd",
            [
                Case("deletion -> watch event", on(hosts, bare_handoff)),
                Case("interlock", on(served, ours.handoff)),
            ],
            goal=1.3,
        ),
        Question(
            "etcd-tasks",
            "E: acquire+release on etcd, 64 tasks on 64 locks, for one pair",
            [
                Case("Txn + Txn", in_tasks(64, hosts, bare_in_tasks)),
                Case("interlock", in_tasks(64, served, ours.in_tasks)),
            ],
        ),
    ]
