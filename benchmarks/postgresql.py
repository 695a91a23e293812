"""Questions for the PostgreSQL store: a pair and a hand-off, beside bare statements, advisory locks and other libraries.

The server is a durable one: a commit waits for the disk, unless a case says otherwise; interlock's release does not by default.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import psycopg

from benchmarks import ours
from benchmarks.pace import middle, timed
from benchmarks.process import in_another
from benchmarks.question import Case, Measure, Question, when
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.model import Claim, Granted
from interlock.testing.servers.postgresql import Server
from interlock.urls import split

DURABLE = ("fsync=on", "full_page_writes=on", "synchronous_commit=on", "shared_buffers=128MB")
TABLE = "create table bare (resource text primary key, owner text, token bigint, lapses_at float8, who text)"
TAKE = (
    "insert into bare as b values (%s, %s, 1, extract(epoch from clock_timestamp()) + 30, %s) on conflict (resource) do update "
    "set owner = excluded.owner, token = b.token + 1, lapses_at = excluded.lapses_at "
    "where b.lapses_at <= extract(epoch from clock_timestamp()) returning token"
)
FREE = "delete from bare where resource = %s and owner = %s"
FREE_SOON = f"with setting as materialized (select set_config('synchronous_commit', 'off', true)) {FREE.replace('bare', 'bare using setting', 1)}"
WHO = '["worker-7",21133,"MainThread","billing/run.py:88"]'


@contextmanager
def served() -> Iterator[str]:
    server = Server(*DURABLE)
    server.start()
    try:
        yield server.conninfo
    finally:
        server.kill()


def choosing(durability: str) -> ours.Served:
    @contextmanager
    def open() -> Iterator[str]:
        with served() as url:
            yield f"{url}?durability={durability}"

    return open


def bare(url: str) -> Iterator[Measure]:
    """One insert and one delete, prepared: a lock without queue, waiting or wake-up."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute(TABLE)

        def once() -> None:
            assert connection.execute(TAKE, ("bench", "0123456789abcdef0123-1", WHO)).fetchone()
            connection.execute(FREE, ("bench", "0123456789abcdef0123-1"))

        yield lambda: timed(once)


def bare_release(url: str) -> Iterator[Measure]:
    """The same, where the delete does not wait for the disk, as a release of ours does not that lets nobody in."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute(TABLE)

        def once() -> None:
            assert connection.execute(TAKE, ("bench", "0123456789abcdef0123-1", WHO)).fetchone()
            connection.execute(FREE_SOON, ("bench", "0123456789abcdef0123-1"))

        yield lambda: timed(once)


def advisory(url: str) -> Iterator[Measure]:
    """A session's advisory lock: it writes nothing, and is gone with its connection."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:

        def once() -> None:
            connection.execute("select pg_advisory_lock(%s)", (7,))
            connection.execute("select pg_advisory_unlock(%s)", (7,))

        yield lambda: timed(once)


def store(url: str) -> Iterator[Measure]:
    """Our store, asked without the core above it."""
    runtime = Threads()
    made = Assembly(dialect_of_url(split(url)), runtime).store(asynchronous=False)

    def once() -> None:
        claim = Claim("bench", runtime.fresh_id(), 30.0, who=WHO)
        assert isinstance(drive(made.claim(claim)), Granted)
        assert drive(made.release("bench", claim.id))

    yield lambda: timed(once)
    drive(made.close())


def tooz(url: str) -> Iterator[Measure]:
    coordinator = import_module("tooz.coordination").get_coordinator(url, b"bench")
    coordinator.start()

    def once() -> None:
        lock = coordinator.get_lock(b"bench")
        lock.acquire()
        lock.release()

    yield lambda: timed(once)
    coordinator.stop()


def dlock(url: str) -> Iterator[Measure]:
    engine = import_module("sqlalchemy").create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    create: Any = import_module("sqlalchemy_dlock").create_sadlock
    with engine.connect() as connection:

        def once() -> None:
            with create(connection, "bench"):
                pass

        yield lambda: timed(once)
    engine.dispose()


def pglock(url: str) -> Iterator[Measure]:
    django: Any = import_module("django")
    conf: Any = import_module("django.conf")
    port = url.rpartition(":")[2].partition("/")[0]
    conf.settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres",
                "USER": "postgres",
                "HOST": "127.0.0.1",
                "PORT": port,
            }
        },
        INSTALLED_APPS=["pgactivity", "pglock"],
    )
    django.setup()
    advisory: Any = import_module("pglock").advisory

    def once() -> None:
        with advisory("bench"):
            pass

    yield lambda: timed(once)


ADVISORY = """
import json, sys, time, psycopg
connection = psycopg.connect(sys.argv[1], autocommit=True, prepare_threshold=0)
print("ready", flush=True)
for line in sys.stdin:
    connection.execute("select pg_advisory_lock(8)")
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    connection.execute("select pg_advisory_unlock(8)")
"""


def advisory_handoff(url: str) -> Iterator[Measure]:
    with (
        psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection,
        in_another(ADVISORY, url) as other,
    ):

        def once() -> float:
            connection.execute("select pg_advisory_lock(8)")
            other.tell()
            while not connection.execute(
                "select 1 from pg_locks where locktype = 'advisory' and not granted"
            ).fetchone():
                pass
            time.sleep(ours.SETTLE)
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            connection.execute("select pg_advisory_unlock(8)")
            return float(json.loads(other.hear())) - released

        yield lambda: middle(once, 60)


def _peer(make: Callable[[str], Iterator[Measure]]) -> Any:
    return ours.on(served, make)


def questions() -> list[Question]:
    return [
        Question(
            "postgresql-pair",
            "uncontended acquire+release, PostgreSQL store, durable commits",
            [
                Case("bare statements", ours.on(served, bare)),
                Case("bare, delete not flushed", ours.on(served, bare_release)),
                Case("advisory lock", ours.on(served, advisory)),
                Case("interlock, the store alone", ours.on(served, store)),
                Case("interlock", ours.on(served, ours.pair)),
                Case("interlock, strict", ours.on(choosing("strict"), ours.pair)),
                Case("interlock, relaxed", ours.on(choosing("relaxed"), ours.pair)),
                *when("tooz", Case("tooz", _peer(tooz))),
                *when("sqlalchemy_dlock", Case("sqlalchemy-dlock", _peer(dlock))),
                *when("pglock", Case("django-pglock", _peer(pglock))),
            ],
            goal=1.2,
            rounds=9,
            note="bare: a row with owner and expiry, no queue; advisory locks write nothing and end with their connection",
        ),
        Question(
            "postgresql-handoff",
            "hand-off to a waiter in another process, PostgreSQL store (release called -> waiter has it)",
            [
                Case("advisory lock", ours.on(served, advisory_handoff)),
                Case("interlock", ours.on(served, ours.handoff)),
                Case("interlock, strict", ours.on(choosing("strict"), ours.handoff)),
            ],
            goal=1.5,
            rounds=7,
        ),
    ]
