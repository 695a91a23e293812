"""Questions for the MariaDB store: a pair and a hand-off, beside bare statements, GET_LOCK and other libraries.

The server is a durable one: every commit waits for the disk, for all contenders alike. Its buffer pool has 128 MB: with 16 MB the bare statement's
slowest hundredth is several times slower.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pymysql

from benchmarks import ours
from benchmarks.pace import middle, timed
from benchmarks.process import in_another
from benchmarks.question import Case, Measure, Question, when
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.model import Claim, Granted
from interlock.testing.servers.mysql import running
from interlock.urls import open_store, split

DURABLE = ("--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=128M")
TABLE = "create table bare (resource varbinary(1100) primary key, owner varbinary(64), token bigint, lapses_at double, who text) engine=InnoDB"
TAKE = "insert into bare values (%s, %s, 1, unix_timestamp(now(6)) + 30, %s)"
FREE = "delete from bare where resource = %s and owner = %s"
WHO = '["worker-7",21133,"MainThread","billing/run.py:88"]'


@contextmanager
def served() -> Iterator[str]:
    with running(*DURABLE) as server:
        yield server.url()


def _connect(url: str) -> Any:
    parts = split(url)
    return closing(
        pymysql.connect(host="127.0.0.1", port=parts.port or 0, user="root", database="app", autocommit=True)
    )


def bare(url: str) -> Iterator[Measure]:
    """One insert and one delete: a lock without queue, waiting or wake-up."""
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)

        def once() -> None:
            cursor.execute(TAKE, ("bench", "0123456789abcdef0123-1", WHO))
            cursor.execute(FREE, ("bench", "0123456789abcdef0123-1"))

        yield lambda: timed(once)


def get_lock(url: str) -> Iterator[Measure]:
    """A named lock of the server: it writes nothing, and is gone with its connection."""
    with _connect(url) as connection, connection.cursor() as cursor:

        def once() -> None:
            cursor.execute("select get_lock('bench', 10)")
            cursor.execute("select release_lock('bench')")

        yield lambda: timed(once)


def store(url: str) -> Iterator[Measure]:
    """Our store, asked without the core above it."""
    runtime = Threads()
    made = open_store(url, runtime, asynchronous=False)

    def once() -> None:
        claim = Claim("bench", runtime.fresh_id(), 30.0, who=WHO)
        assert isinstance(drive(made.claim(claim)), Granted)
        assert drive(made.release("bench", claim.id))

    yield lambda: timed(once)
    drive(made.close())


def tooz(url: str) -> Iterator[Measure]:
    place = url.partition("?")[0]
    coordinator = import_module("tooz.coordination").get_coordinator(place, b"bench")
    coordinator.start()

    lock = coordinator.get_lock(b"bench")  # once: each connects anew

    def once() -> None:
        lock.acquire()
        lock.release()

    yield lambda: timed(once)
    coordinator.stop()


def dlock(url: str) -> Iterator[Measure]:
    place = url.partition("?")[0].replace("mysql:", "mysql+pymysql:")
    engine = import_module("sqlalchemy").create_engine(place)
    create: Any = import_module("sqlalchemy_dlock").create_sadlock
    with engine.connect() as connection:

        def once() -> None:
            with create(
                connection, "bench", contextual_timeout=10
            ):  # its default, without end, MariaDB refuses
                pass

        yield lambda: timed(once)
    engine.dispose()


GET_LOCK = """
import json, sys, time, pymysql
connection = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root", database="app", autocommit=True)
cursor = connection.cursor()
print("ready", flush=True)
for line in sys.stdin:
    cursor.execute("select get_lock('handoff', 60)")
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    cursor.execute("select release_lock('handoff')")
"""
WAITING = "select 1 from information_schema.processlist where state = 'User lock'"


def get_lock_handoff(url: str) -> Iterator[Measure]:
    port = str(split(url).port)
    with _connect(url) as connection, connection.cursor() as cursor, in_another(GET_LOCK, port) as other:

        def once() -> float:
            cursor.execute("select get_lock('handoff', 60)")
            other.tell()
            while not cursor.execute(WAITING):
                pass
            time.sleep(ours.SETTLE)
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            cursor.execute("select release_lock('handoff')")
            return float(json.loads(other.hear())) - released

        yield lambda: middle(once, 60)


def _peer(make: Callable[[str], Iterator[Measure]]) -> Any:
    return ours.on(served, make)


def questions() -> list[Question]:
    return [
        Question(
            "mysql-pair",
            "uncontended acquire+release, MariaDB store, durable commits",
            [
                Case("bare statements", ours.on(served, bare)),
                Case("GET_LOCK", ours.on(served, get_lock)),
                Case("interlock, the store alone", ours.on(served, store)),
                Case("interlock", ours.on(served, ours.pair)),
                *when("tooz", Case("tooz", _peer(tooz))),
                *when("sqlalchemy_dlock", Case("sqlalchemy-dlock", _peer(dlock))),
            ],
            goal=1.2,
            rounds=9,
            note="bare: a row with owner and expiry, no queue; GET_LOCK writes nothing and ends with its connection",
        ),
        Question(
            "mysql-handoff",
            "hand-off to a waiter in another process, MariaDB store (release called -> waiter has it)",
            [
                Case("GET_LOCK", ours.on(served, get_lock_handoff)),
                Case("interlock", ours.on(served, ours.handoff)),
            ],
            goal=2.0,
            rounds=7,
        ),
    ]
