"""Tables and procedures: made on first use, by many at once, under any prefix, with the least rights; or by an administrator."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from contextlib import closing
from uuid import uuid4

import pymysql
import pytest

import interlock
from interlock.backends.sql.mysql.schema import REFUSE_IF_READ_ONLY, VERSION, Schema
from interlock.errors import InterlockError, InvalidSetting, InvalidURL, StoreUnfit
from interlock.lab.child_process import program_environment
from interlock.testing.servers.mysql import Server, running
from tests.patience import PATIENCE, until


def new_prefix() -> str:
    return f"n{uuid4().hex[:8]}_"


def user(server: Server, *rights: str) -> str:
    name = f"u{uuid4().hex[:8]}"
    server.run(f"create user {name}@'%'", *[right.format(f"{name}@'%'") for right in rights])
    return name


def script(url: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "sql", url, *words],
        capture_output=True,
        text=True,
        check=True,
        env=program_environment(),
    )
    return done.stdout


def test_twenty_who_start_at_once_all_succeed(server: Server) -> None:
    url, failed, tokens = server.url(new_prefix()), list[BaseException](), list[int]()
    gate = threading.Barrier(20)

    def start() -> None:
        try:
            gate.wait()
            with interlock.connect(url) as client, client.lock("x", timeout=120) as lease:
                tokens.append(lease.token)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len(set(tokens)) == 20


def run_script(server: Server, text: str) -> None:
    command = shutil.which("mariadb") or shutil.which("mysql")
    assert command is not None
    subprocess.run(
        [command, "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "root", "app"],
        input=text,
        text=True,
        check=True,
    )


def test_what_interlock_sql_prints_may_be_run_again_while_programs_work(server: Server) -> None:
    """Also without --role: the rights that were granted stay."""
    prefix, name = new_prefix(), user(server)
    run_script(server, script(server.url(prefix), "--role", name))
    over = threading.Event()
    met: list[BaseException] = []
    pairs = 0

    def work() -> None:
        nonlocal pairs
        with interlock.connect(server.url(prefix, user=name)) as client:
            while not over.is_set():
                try:
                    with client.lock("x", timeout=PATIENCE):
                        pairs += 1
                except Exception as error:
                    met.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(4):
        before = pairs
        run_script(server, script(server.url(prefix)))
        until(lambda before=before: pairs > before + 3 or met)  # type: ignore[misc]
    over.set()
    worker.join()
    assert not met


def test_what_interlock_sql_prints_is_enough_and_execute_is_all_that_a_program_needs(server: Server) -> None:
    prefix = new_prefix()
    name = user(server)
    text = script(server.url(prefix), "--role", name)
    run_script(server, text)
    url = server.url(prefix, user=name)
    with interlock.connect(url) as one, interlock.connect(url) as two:
        lease = one.lock("x").acquire()
        assert lease is not None
        waiting = threading.Thread(target=lambda: two.lock("x").acquire(timeout=60))
        waiting.start()
        assert two.inspect("x").holders
        lease.release()
        waiting.join()
        one.register("r").update(lambda value: "1")
    with closing(server.connect(name)) as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.Error, match="denied"):
            cursor.execute(f"select * from {prefix}claim")


def test_every_step_that_writes_refuses_a_read_only_server_first() -> None:
    called = "claim release renew evict find write watch sweep".split()
    for name in called:
        text = Schema().procedures()[f"interlock_v{VERSION}_{name}"]
        assert 0 < text.index(REFUSE_IF_READ_ONLY) < text.index("start transaction"), name


def test_a_program_without_rights_is_told_what_it_lacks(server: Server) -> None:
    with interlock.connect(server.fresh_url()) as client, client.lock("x"):
        pass
    installed = server.fresh_url()
    with interlock.connect(installed) as client, client.lock("x"):
        pass
    prefix = installed.partition("prefix=")[2]
    other = user(server, "grant select on app.* to {}")
    with (
        interlock.connect(server.url(prefix, user=other)) as client,
        pytest.raises(StoreUnfit, match="EXECUTE"),
    ):
        client.lock("x").acquire()


def test_a_program_that_may_not_create_tables_is_told_of_interlock_sql(server: Server) -> None:
    name = user(server, "grant execute on app.* to {}")
    with interlock.connect(server.url(new_prefix(), user=name)) as client:
        with pytest.raises(StoreUnfit, match="interlock sql"):
            client.lock("x").acquire()


def test_tables_of_a_later_version_are_refused(server: Server) -> None:
    prefix = new_prefix()
    server.run(
        "use app",
        f"create table {prefix}meta (one tinyint primary key, version int not null)",
        f"insert into {prefix}meta values (1, 99)",
    )
    with interlock.connect(server.url(prefix)) as client, pytest.raises(StoreUnfit, match="version 99"):
        client.lock("x").acquire()


def test_a_table_of_another_program_under_our_name_is_refused_and_left_alone(server: Server) -> None:
    prefix = new_prefix()
    server.run(
        "use app",
        f"create table {prefix}claim (id int primary key, note text)",
        f"insert into {prefix}claim values (1, 'theirs')",
    )
    with interlock.connect(server.url(prefix)) as client:
        with pytest.raises(StoreUnfit, match=r"belongs to another program; choose names with \?prefix="):
            client.lock("x").acquire()
    assert list(server.run(f"select * from app.{prefix}claim")) == [(1, "theirs")]


def test_two_prefixes_know_nothing_of_each_other(server: Server) -> None:
    with interlock.connect(server.fresh_url()) as one, interlock.connect(server.fresh_url()) as two:
        with one.lock("x"), two.lock("x"):
            assert list(one.scan("")) == list(two.scan("")) == ["x"]


@pytest.mark.parametrize("prefix", ["1e5_", "a-b", "x" * 41, "a;drop"])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSetting, match="prefix="):
        interlock.connect(f"mysql://root@127.0.0.1/app?prefix={prefix}")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://root@host", "needs a database"),
        ("mysql://root@host/app?nonsense=1", "nonsense"),
        ("mysql://root@host:99999/app", "port"),
        ("mysql://root@host/app?tls=maybe", "tls=maybe"),
        ("mariadb://root@host/app?connections=0", "connections=0"),
    ],
)
def test_a_wrong_url_is_refused_with_a_sentence_that_helps(url: str, said: str) -> None:
    with pytest.raises((InvalidURL, InvalidSetting), match=said):
        interlock.connect(url)


def test_names_are_exact_in_case_accents_and_trailing_spaces(url: str) -> None:
    names = ["a", "a ", "A", "e", "é", "e\u0301", "ß", "ss", "ä", "x" * 1024, "x" * 1023, "\U0001f512"]
    with interlock.connect(url) as client:
        leases = [client.lock(name).acquire(blocking=False) for name in names]
        assert all(leases)
        assert list(client.scan("")) == sorted(names)


def test_a_wrong_password_and_a_missing_database_are_said(server: Server) -> None:
    server.run(
        "create user if not exists secret@'%' identified by 'right'", "grant all on app.* to secret@'%'"
    )
    for place, said in (
        (f"mysql://secret:wrong@127.0.0.1:{server.port}/app", "password"),
        (f"mysql://root@127.0.0.1:{server.port}/nowhere", "database"),
    ):
        with interlock.connect(place) as client, pytest.raises(StoreUnfit, match=said) as met:
            client.lock("x").acquire()
        assert "wrong" not in str(met.value).replace("is wrong", "")
        assert "wrong" not in repr(client)


@pytest.mark.server
def test_a_server_that_logs_statements_is_refused_with_what_to_set() -> None:
    with running("--log-bin", "--server-id=1", "--binlog-format=STATEMENT") as server:
        with interlock.connect(server.url()) as client, pytest.raises(StoreUnfit, match="binlog_format"):
            client.lock("x").acquire()
        server.run("set global binlog_format = 'MIXED'")
        with interlock.connect(server.url()) as client, client.lock("x"):
            pass


def test_no_server_there_is_said_in_one_sentence() -> None:
    with interlock.connect("mysql://root@127.0.0.1:1/app", connect_timeout=1) as client:
        with pytest.raises(InterlockError, match="is the server running"):
            client.lock("x").acquire(timeout=0.5)
