"""The tables: created by many at once, with chosen names, by users with few rights; and one holder whatever races."""

from __future__ import annotations

import io
import multiprocessing
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.backends.sql.postgresql.schema import (
    FUNCTIONS,
    INSTALL_LOCK,
    MAX_PREFIX_CHARACTERS,
    VERSION,
    Schema,
)
from interlock.backends.sql.server_store import ServerStore
from interlock.cli import main
from interlock.errors import InvalidURL, StoreUnavailable, StoreUnfit
from interlock.model import Busy, Claim, Granted, Renewal, Renewed
from interlock.testing.servers.postgresql import Server, fresh_schema
from interlock.urls import split
from tests.patience import until
from tests.sql import contract


def opened(url: str) -> ServerStore:
    return Assembly(dialect_of_url(split(url)), Threads()).store(asynchronous=False)


@pytest.fixture
def store(url: str) -> Any:
    made = opened(url)
    yield made
    drive(made.close())


def pair(url: str, name: str = "x") -> int:
    with interlock.connect(url) as client, client.lock(name, timeout=20) as lease:
        return lease.token


def test_the_functions_answer_the_contract_of_the_steps(store: ServerStore) -> None:
    contract.check(contract.of(store))


# ---- creating --------------------------------------------------------------------


def test_twenty_who_start_at_once_create_the_tables_once(server: Server) -> None:
    url, together = server.url(fresh_schema()), threading.Barrier(20)

    def start(number: int) -> int:
        together.wait()
        return pair(url, f"n{number}")

    with ThreadPoolExecutor(20) as threads:
        assert len(set(threads.map(start, range(20)))) == 20


def test_a_session_that_waited_for_another_to_create_the_tables_finds_them(server: Server) -> None:
    """It has looked for them before, and remembers that they are missing: as sessions of a pooler that have created others do."""
    schema = fresh_schema()
    script = Schema(schema).script().encode()
    with (
        psycopg.connect(server.conninfo, prepare_threshold=None) as first,
        psycopg.connect(server.conninfo, autocommit=True, prepare_threshold=None) as second,
        ThreadPoolExecutor(1) as thread,
    ):
        second.execute(Schema(fresh_schema()).script().encode())
        with pytest.raises(psycopg.errors.UndefinedTable):
            second.execute(f"select version from {schema}.meta".encode())
        first.execute(f"select pg_advisory_xact_lock({INSTALL_LOCK})".encode())
        waits = thread.submit(second.execute, script)
        until(lambda: server.sql("select 1 from pg_locks where locktype = 'advisory' and not granted"))
        first.execute(f"create schema {schema}".encode())
        first.commit()
        waits.result()
    assert pair(server.url(schema)) > 0


def test_schema_and_prefix_are_taken_literally(server: Server) -> None:
    schema = 'Odd "Schéma"; x' + uuid4().hex[:4]
    url = server.url("", prefix="My_").replace("schema=", f"schema={schema.replace(' ', '%20')}", 1)
    assert pair(url) > 0
    found = server.sql(
        "select table_name from information_schema.tables where table_schema = %s order by 1", schema
    )
    assert [name for (name,) in found] == ["My_bell", "My_claim", "My_meta", "My_register", "My_slot"]


def test_the_longest_prefix_is_cut_from_no_name(server: Server) -> None:
    schema = fresh_schema()
    assert pair(server.url(schema, prefix="x" * MAX_PREFIX_CHARACTERS)) > 0
    names = [
        name.removeprefix("x" * MAX_PREFIX_CHARACTERS)
        for (name,) in server.sql("select proname from pg_proc where pronamespace = %s::regnamespace", schema)
    ]
    assert sorted(names) == sorted(f"{name.removesuffix('_step')}_{VERSION}" for name in FUNCTIONS)


def test_the_statements_on_the_page_run(server: Server) -> None:
    page = Path(__file__).parents[2] / "docs/backends/postgresql.md"
    (block,) = re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    asked = [statement for statement in block.split(";\n") if statement.strip()]
    assert len(asked) == 5
    for statement in asked:
        server.sql(statement.replace("%", "%%"))


@pytest.mark.parametrize(
    "option",
    ["schema=", "prefix=" + "x" * 60, "durability=maybe", "connections=0", "connections=x", "sslmod=disable"],
)
def test_a_wrong_option_is_refused_in_one_sentence(option: str) -> None:
    with pytest.raises(InvalidURL):
        interlock.connect(f"postgresql://h/db?{option}")


def test_the_tables_of_a_later_interlock_are_refused(server: Server) -> None:
    schema = fresh_schema()
    pair(server.url(schema))
    server.sql(f'update {schema}.meta set version = 3; alter function {schema}."claim_2" rename to "claim_3"')
    with pytest.raises(StoreUnfit, match="later interlock"):
        pair(server.url(schema))


def test_a_table_of_another_program_under_our_name_is_refused_and_left_alone(server: Server) -> None:
    schema = fresh_schema()
    server.sql(f"create schema {schema}")
    server.sql(f"create table {schema}.claim (id int primary key, note text)")
    server.sql(f"insert into {schema}.claim values (1, 'theirs')")
    with interlock.connect(server.url(schema)) as client:
        with pytest.raises(StoreUnfit, match=r"belongs to another program; .* with \?schema="):
            client.lock("x").acquire()
    assert server.sql(f"select * from {schema}.claim") == [(1, "theirs")]


def test_the_printed_sql_creates_everything_and_grants_the_least_rights(server: Server) -> None:
    schema, role = fresh_schema(), f"app{uuid4().hex[:8]}"
    server.sql(f"create role {role} login")
    with pytest.raises(StoreUnfit, match="interlock sql"):
        pair(server.url(schema, user=role))
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["sql", server.url(schema), "--role", role]) == 0
    with psycopg.connect(server.conninfo, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(printed.getvalue().encode())
    assert pair(server.url(schema, user=role)) > 0
    with interlock.connect(server.url(schema, user=role)) as client:
        register = client.register("r")
        register.update(lambda value: "v")
        assert register.read().value == "v"


RIGHTS = {
    "usage on schema {s}": "schema",
    "select on {s}.claim": "claim",
    "insert on {s}.claim": "claim",
    "update on {s}.claim": "claim",
    "delete on {s}.claim": "claim",
    "update on {s}.slot": "slot",
    'execute on function {s}."claim_2"': "claim_2",
}


@pytest.mark.parametrize("right", RIGHTS)
def test_a_missing_right_is_named_and_nothing_is_left(right: str, server: Server) -> None:
    schema, role = fresh_schema(), f"app{uuid4().hex[:8]}"
    server.sql(f"create role {role} login")
    pair(server.url(schema))
    server.sql(Schema(schema).grants(role))
    assert pair(server.url(schema, user=role)) > 0
    server.sql(f"revoke {right.format(s=schema)} from {role}")
    with pytest.raises(StoreUnfit, match=f"{RIGHTS[right]}.*interlock sql"):
        with interlock.connect(server.url(schema, user=role)) as client, client.lock("x"), client.lock("y"):
            pass
    if right.split()[0] not in ("delete", "update"):  # without these, what was granted can only lapse
        assert server.sql(f"select count(*) from {schema}.claim where state < 2") == [(0,)]


def test_names_are_exact_up_to_a_kilobyte(url: str) -> None:
    names = [
        "a",
        "a ",
        " a",
        "A",
        "e",
        "é",
        "e\u0301",
        "\\",
        "'",
        '"',
        "{}",
        "x" * 1024,
        "x" * 1023 + "y",
        "\U0010ffff",
    ]
    with interlock.connect(url) as client:
        leases = [client.lock(name).acquire(blocking=False) for name in names]
        assert all(leases)
        assert list(client.scan()) == sorted(names)
        for lease in leases:
            assert lease
            lease.release()


def test_every_function_is_among_those_that_are_granted() -> None:
    script = Schema("s").script()
    assert script.count("create or replace function") == len(FUNCTIONS)


# ---- races -----------------------------------------------------------------------


def _contend(url: str, worker: int, gate: Any, names: int, results: Any) -> None:
    store = opened(url)
    got: list[int] = []
    for number in range(names):
        gate.wait()
        answer = drive(store.claim(Claim(f"r{number}", f"{worker}", 60.0, queued=False), 30.0))
        if isinstance(answer, Granted):
            got.append(number)
    results.put(got)
    drive(store.close())


def test_of_16_processes_that_claim_a_name_at_once_one_gets_it(url: str) -> None:
    pair(url)
    context: Any = multiprocessing.get_context("fork" if sys.version_info < (3, 12) else "spawn")
    names, workers = 150, 16
    gate, results = context.Barrier(workers), context.Queue()
    started = [
        context.Process(target=_contend, args=(url, worker, gate, names, results))
        for worker in range(workers)
    ]
    for process in started:
        process.start()
    holders = Counter(number for _ in started for number in results.get(timeout=120))
    for process in started:
        process.join()
    assert (len(holders), max(holders.values())) == (names, 1)


def _paused(server: Server, schema: str, key: int) -> None:
    """Install functions that stop between the look at the queue and the removal of lapsed rows, while a test holds `key`."""
    script = Schema(schema).script()
    pause = f"perform pg_advisory_lock_shared({key}); perform pg_advisory_unlock_shared({key});"
    place = "  if dead then\n    delete"
    assert script.count(place) == 1
    script = script.replace(place, f"  {pause}\n{place}")
    with psycopg.connect(server.conninfo, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(script.encode())


def test_a_renewal_between_the_count_and_the_removal_leaves_one_holder(server: Server) -> None:
    schema, key = fresh_schema(), uuid4().int % 2**62
    _paused(server, schema, key)
    store = opened(server.url(schema))
    assert isinstance(drive(store.claim(Claim("r", "first", 0.05))), Granted)
    until(
        lambda: server.sql(
            f"select 1 from {schema}.claim where lapses_at < extract(epoch from clock_timestamp())"
        )
    )
    with psycopg.connect(server.conninfo, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", (key,))
        answers: list[Any] = []
        contender = threading.Thread(
            target=lambda: answers.append(drive(store.claim(Claim("r", "second", 30.0), 30.0)))
        )
        contender.start()
        until(
            lambda: server.sql(
                "select 1 from pg_locks where locktype = 'advisory' and not granted and objid = %s",
                key % 2**32,
            )
        )
        # As a renewal does that read the clock just before the lapse, and is committed only now.
        other.execute(f"update {schema}.claim set lapses_at = lapses_at + 60 where id = 'first'".encode())
        other.execute("select pg_advisory_unlock(%s)", (key,))
        contender.join()
    (answer,) = answers
    assert isinstance(answer, Busy)
    assert server.sql(f"select id from {schema}.claim where state = 1") == [("first",)]
    drive(store.close())


# ---- rows that a guard has locked ------------------------------------------------


def _pinned(server: Server, schema: str, work: Callable[[], None]) -> None:
    """Run `work` while a transaction holds the row of the present holder as `guards.sql` does."""
    with psycopg.connect(server.conninfo) as guard:
        found = guard.execute(
            f"select token from {schema}.claim where resource = 'r' and state = 1 for key share".encode()
        ).fetchall()
        assert len(found) == 1
        work()


def test_a_lapsed_claim_stands_while_a_guard_has_locked_it(server: Server) -> None:
    schema = fresh_schema()
    store = opened(server.url(schema))
    drive(store.claim(Claim("r", "first", 0.05)))

    def contend() -> None:
        until(lambda: not drive(store.inspect("r")).standings)
        answer = drive(store.claim(Claim("r", "second", 30.0)))
        assert isinstance(answer, Busy)
        assert answer.retry_after <= 0.05

    _pinned(server, schema, contend)
    assert isinstance(drive(store.claim(Claim("r", "second", 30.0))), Granted)
    drive(store.close())


def test_a_guard_stops_neither_renewal_nor_release_and_the_next_comes_in_after_it(server: Server) -> None:
    schema = fresh_schema()
    store = opened(server.url(schema))
    drive(store.claim(Claim("r", "first", 30.0)))

    def renew_and_release() -> None:
        assert drive(store.renew([Renewal("r", "first", 60.0)])) == [Renewed(60.0)]
        assert isinstance(drive(store.claim(Claim("r", "second", 30.0))), Busy)
        assert drive(store.release("r", "first")) is True
        assert drive(store.release("r", "first")) is False
        assert isinstance(drive(store.claim(Claim("r", "second", 30.0))), Busy)

    _pinned(server, schema, renew_and_release)
    assert isinstance(drive(store.claim(Claim("r", "second", 30.0))), Granted)
    drive(store.close())


def test_an_eviction_waits_for_the_guard(server: Server) -> None:
    schema = fresh_schema()
    store = opened(server.url(schema))
    drive(store.claim(Claim("r", "first", 30.0)))
    drive(store.claim(Claim("r", "second", 30.0)))
    evicted: list[Any] = []
    operator = threading.Thread(target=lambda: evicted.extend(drive(store.evict("r", None, "stuck"))))

    def evict() -> None:
        operator.start()
        operator.join(0.3)
        assert operator.is_alive()
        assert [holder.id for holder in drive(store.inspect("r")).holders] == ["first"]

    _pinned(server, schema, evict)
    operator.join()
    assert [standing.id for standing in evicted] == ["first"]
    assert [holder.id for holder in drive(store.inspect("r")).holders] == ["second"]
    drive(store.close())


def test_an_eviction_that_a_guard_outlasts_fails_with_the_reason_and_changes_nothing(server: Server) -> None:
    schema = fresh_schema()
    store = opened(server.url(schema))
    drive(store.claim(Claim("r", "first", 30.0)))

    def evict() -> None:
        with pytest.raises(StoreUnavailable, match="locked by an open transaction, such as that of a guard"):
            drive(store.evict("r", None, "stuck"))

    _pinned(server, schema, evict)
    assert [holder.id for holder in drive(store.inspect("r")).holders] == ["first"]
    assert drive(store.renew([Renewal("r", "first", 60.0)])) == [Renewed(60.0)]
    drive(store.close())


# ---- tokens, clocks, late requests -----------------------------------------------


def test_a_clock_that_was_set_back_keeps_nobody_waiting_and_tokens_rise(server: Server) -> None:
    schema = fresh_schema()
    store = opened(server.url(schema))
    first = drive(store.claim(Claim("r", "first", 2.0)))
    assert isinstance(first, Granted)
    # What the row looks like when the clock goes back by an hour after the grant.
    server.sql(
        f"update {schema}.claim set lapses_at = lapses_at + 3600; update {schema}.slot set last = last + 3600000000"
    )
    answer = drive(store.claim(Claim("r", "second", 2.0)))
    assert isinstance(answer, Busy)
    assert answer.retry_after <= 2.0
    until(lambda: isinstance(drive(store.claim(Claim("r", "second", 2.0))), Granted))
    second = drive(store.claim(Claim("r", "second", 2.0)))
    assert isinstance(second, Granted)
    assert second.token > first.token + 3_600_000_000 - 1
    drive(store.close())


def test_a_request_that_arrives_after_its_own_take_back_never_enters(store: ServerStore) -> None:
    claim = Claim("r", "slow", 30.0)
    store._state.own_claims.unanswered["slow"] = None  # as after a claim without an answer
    assert drive(store.release("r", "slow")) is False
    late = drive(store.claim(claim))
    assert not isinstance(late, (Granted, Busy))
    assert drive(store.inspect("r")).standings == ()
    assert isinstance(drive(store.claim(Claim("r", "other", 30.0))), Granted)


def test_relaxed_commits_do_not_wait_for_the_disk_and_leave_no_setting_behind(server: Server) -> None:
    url = server.url(fresh_schema(), durability="relaxed", connections=1)
    with interlock.connect(url) as client:
        for _ in range(3):
            with client.lock("x"):
                pass
        connection = client._core.store._requester.source._idle[0].connection  # type: ignore[attr-defined]
        import time

        ((setting,),) = drive(connection.query(b"show synchronous_commit", time.monotonic() + 5))
        assert setting == b"on"
