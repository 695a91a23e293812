"""The slot row knows when a resource is idle, and when a claim is alone. What it says is always true, and then nothing else is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from zlib import crc32

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.mysql.schema import Schema
from interlock.model import Busy, Claim, Gone, Granted, Renewal, Renewed
from interlock.store import Store
from interlock.testing.lag import at_most
from interlock.testing.servers.mysql import Server
from interlock.urls import open_store
from tests.patience import until

GUARD = "select 1 from {}claim where resource = 'x' and state = 1 lock in share mode"
READS = "show session status where variable_name in ('Handler_read_key', 'Handler_read_next', 'Handler_read_first')"


def as_mysql_reads(text: str) -> str:
    """What is left of a procedure on MySQL, where comments for MariaDB are comments and those for MySQL are not."""
    return re.sub(r"/\*!\d+ (.*?) \*/", r"\1", re.sub(r"/\*M!\d+ .*? \*/", "", text))


@pytest.fixture(params=["MariaDB", "MySQL"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """A place of this test's own, with the procedures as one of the two reads them."""
    if request.param == "MariaDB":
        return server.fresh_url()
    schema = Schema("mysqls_")
    procedures = schema.procedures()
    assert [name for name, text in procedures.items() if as_mysql_reads(text) != text]
    server.run(
        *("use app", *schema.tables()),
        *[f"delete from {schema.prefix}{table}" for table in ("claim", "pending", "bell", "mail")],
        *[f"drop procedure if exists {name}" for name in procedures],
        *[as_mysql_reads(text) for text in procedures.values()],
    )
    return server.url(schema.prefix)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = open_store(url, Threads(), asynchronous=False)
    yield made
    drive(made.close())


@pytest.fixture
def other(url: str) -> Iterator[Store]:
    made = open_store(url, Threads(), asynchronous=False)
    yield made
    drive(made.close())


@pytest.fixture
def prefix(url: str) -> str:
    return url.partition("prefix=")[2]


@contextmanager
def pinned(server: Server, prefix: str) -> Iterator[None]:
    """The row of the holder of x, locked as a guard locks it."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        connection.begin()
        assert cursor.execute(GUARD.format(prefix)) == 1
        yield
        connection.commit()


def claim(store: Store, id: str, ttl: float = 60.0, **more: Any) -> Any:
    return drive(store.claim(Claim("x", id, ttl, **more)))


def take(store: Store, id: str, ttl: float = 60.0) -> None:
    assert isinstance(claim(store, id, ttl), Granted)


def take_the_short_way(store: Store, id: str, ttl: float = 60.0) -> None:
    """Grant a claim, after a pair that lets the slot know that the resource is idle."""
    take(store, "earlier")
    assert drive(store.release("x", "earlier"))
    take(store, id, ttl)


def test_an_idle_claim_and_a_lone_release_read_the_same_few_rows_whatever_was_deleted_before(
    server: Server, store: Store, prefix: str
) -> None:
    take_the_short_way(store, "a")
    assert drive(store.release("x", "a"))
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        counts: list[int] = []
        for statement in (
            f"call {prefix}v2_claim('x', 'b', 60, 1, 1, 1, 60, 1, '', '', '')",
            f"call {prefix}v2_release('x', 'b', 0, '', 0, 0)",
        ):
            cursor.execute("flush status")
            cursor.execute(statement)
            while cursor.nextset():
                pass
            cursor.execute(READS)
            counts.append(sum(int(count) for _, count in cursor.fetchall()))
    assert counts[0] <= 2  # the slot
    assert counts[1] <= 4  # the slot, and the claim to lock and to remove


def test_a_lone_release_that_meets_a_guard_lets_nobody_in(
    server: Server, store: Store, other: Store, prefix: str
) -> None:
    take_the_short_way(store, "a")
    with pinned(server, prefix):
        assert drive(store.release("x", "a"))
        assert isinstance(claim(other, "b", queued=False), Busy)
        assert isinstance(claim(store, "c", queued=False), Busy)
    until(lambda: isinstance(claim(other, "b", queued=False), Granted))


def test_a_lone_claim_that_was_evicted_behind_a_guard_does_not_stand(
    server: Server, store: Store, other: Store, prefix: str
) -> None:
    take_the_short_way(store, "a")
    with pinned(server, prefix):
        assert [met.id for met in drive(other.evict("x", "a", "why"))] == ["a"]
    assert not drive(store.release("x", "a"))
    assert isinstance(claim(store, "a"), Gone)


def test_a_lone_claim_that_was_renewed_behind_a_guard_leaves_nothing(
    server: Server, store: Store, prefix: str
) -> None:
    take_the_short_way(store, "a")
    with pinned(server, prefix):
        assert isinstance(drive(store.renew([Renewal("x", "a", 120.0)]))[0], Renewed)
    assert drive(store.release("x", "a"))
    assert server.run(f"select count(*) from app.{prefix}pending") == ((0,),)


def test_a_lone_release_that_meets_a_guard_does_not_wait(server: Server, store: Store, prefix: str) -> None:
    take_the_short_way(store, "a")
    with pinned(server, prefix), at_most(1.0):  # a lock is waited for 2 seconds
        assert drive(store.release("x", "a"))


def test_slots_that_somebody_has_removed_come_back(server: Server, store: Store, prefix: str) -> None:
    tokens: list[int] = []
    try:
        for number in range(3):
            granted = claim(store, f"a{number}")
            assert isinstance(granted, Granted)
            tokens.append(granted.token)
            server.run(f"delete from app.{prefix}slot")
            assert isinstance(claim(store, "b", queued=False), Busy)
            server.run(f"delete from app.{prefix}slot")
            assert drive(store.release("x", f"a{number}"))
    finally:
        server.run("use app", *Schema(prefix).tables())
    assert tokens == sorted(set(tokens))


def test_the_release_of_a_stranger_removes_nothing(store: Store, other: Store) -> None:
    take_the_short_way(store, "a")
    assert not drive(other.release("x", "b"))
    assert isinstance(claim(other, "b", queued=False), Busy)
    assert drive(store.release("x", "a"))


def test_a_lone_claim_that_has_lapsed_does_not_stand(store: Store, other: Store) -> None:
    take_the_short_way(store, "a", 0.02)
    until(lambda: not drive(other.inspect("x")).holders)
    assert not drive(store.release("x", "a"))
    take(other, "b")


def test_a_lapsed_claim_beside_no_other_is_followed_by_one_holder(store: Store, other: Store) -> None:
    take_the_short_way(store, "a", 0.02)
    until(lambda: not drive(other.inspect("x")).holders)
    take(other, "b")
    assert isinstance(claim(store, "c", queued=False), Busy)


def test_a_lone_claim_with_a_waiter_hands_over(store: Store, other: Store) -> None:
    take_the_short_way(store, "a")
    assert isinstance(claim(other, "b"), Busy)
    assert drive(store.release("x", "a"))
    assert [holder.id for holder in drive(other.inspect("x")).holders] == ["b"]
    assert isinstance(claim(store, "c", queued=False), Busy)


def test_a_release_that_lingers_keeps_others_out(store: Store, other: Store) -> None:
    take_the_short_way(store, "a")
    assert drive(store.release("x", "a", 30.0))
    assert isinstance(claim(other, "b", queued=False), Busy)


def test_a_late_claim_of_a_released_id_does_not_enter_an_idle_resource(
    server: Server, store: Store, prefix: str
) -> None:
    take_the_short_way(store, "a")
    assert drive(store.release("x", "a"))
    server.run("use app", f"call {prefix}v2_release('x', 'late', 0, '', 1, 0)")
    assert isinstance(claim(store, "late"), Gone)


@pytest.mark.parametrize("idle", [True, False])
def test_whoever_watches_is_rung_by_the_next_claim_or_release(
    server: Server, store: Store, prefix: str, idle: bool
) -> None:
    take_the_short_way(store, "a")
    if idle:
        assert drive(store.release("x", "a"))
    server.run("use app", f"call {prefix}v2_watch('qx', 'watcher', 60)")
    if idle:
        take(store, "b")
    else:
        assert drive(store.release("x", "a"))
    assert server.run(f"select bell, message from app.{prefix}mail") == ((b"watcher", b"qx"),)


def test_whoever_waits_for_a_lone_claim_to_go_is_rung(server: Server, store: Store, prefix: str) -> None:
    take_the_short_way(store, "a")
    server.run("use app", f"call {prefix}v2_find('x', 'a', 'watcher', 0)")
    assert drive(store.release("x", "a"))
    assert server.run(f"select bell, message from app.{prefix}mail") == ((b"watcher", b"ca 0"),)


def test_two_resources_of_one_slot_do_not_mistake_each_other(store: Store) -> None:
    first, second = _one_slot()
    for number in range(3):
        for name in (first, second):
            assert isinstance(drive(store.claim(Claim(name, f"{name}{number}", 60.0))), Granted)
            assert isinstance(drive(store.claim(Claim(name, "else", 60.0, queued=False))), Busy)
        for name in (first, second) if number % 2 else (second, first):
            assert drive(store.release(name, f"{name}{number}"))
            assert isinstance(drive(store.claim(Claim(name, "next", 60.0, queued=False))), Granted)
            assert drive(store.release(name, "next"))


def test_an_idle_resource_says_nothing_of_another_one_in_its_slot(store: Store) -> None:
    first, second = _one_slot()
    assert isinstance(drive(store.claim(Claim(first, "held", 60.0))), Granted)
    assert isinstance(drive(store.claim(Claim(second, "a", 60.0))), Granted)
    assert drive(store.release(second, "a"))
    assert isinstance(drive(store.claim(Claim(first, "b", 60.0, queued=False))), Busy)


def _one_slot() -> tuple[str, str]:
    """Two names whose hashes meet."""
    met: dict[int, str] = {}
    for number in range(10_000):
        name = f"n{number}"
        if crc32(name.encode()) & 1023 in met:
            return met[crc32(name.encode()) & 1023], name
        met[crc32(name.encode()) & 1023] = name
    raise AssertionError("no two names meet")
