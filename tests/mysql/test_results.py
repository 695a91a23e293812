"""Our reader of results finds what PyMySQL finds, and says the same when something fails."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from interlock._core.drive import drive
from interlock.backends.sql.dialect import Again, Broken
from interlock.backends.sql.mysql.driver import BlockingDriver
from interlock.backends.sql.mysql.errors import Killed
from interlock.backends.sql.mysql.results import Failed, ResultReader
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most
from interlock.testing.servers.mysql import Server
from tests.patience import until

STATEMENTS = (
    "do 0",
    "select 1, -1, 9223372036854775807, 18446744073709551615, null",
    "select 0.5e0, -1e300, cast(1.5 as float), 1e0 / 3",
    "select 'text', x'00ff80', '', null, x''",
    "select 'käse€😀', cast('käse' as binary)",
    "select repeat('a', 250), repeat('b', 251), repeat('c', 65535), repeat('d', 65536), repeat('e', 200000)",
    "select 1 where false",
    "select null, null",
    "select seq, concat('row', seq) from seq_1_to_2000",
    "select " + ", ".join(str(number) for number in range(250)),
    "call many()",
    "update t set n = n + 1 where k between 1 and 300",
)
LONG = 17 * 2**20  # bytes: more than one packet holds


@pytest.fixture(scope="module")
def base(server: Server) -> str:
    name = "results"
    server.run(
        f"create or replace database {name}",
        f"use {name}",
        "create table t (k int primary key, n int) engine=InnoDB",
        "insert into t select seq, 0 from seq_1_to_300",
        "create procedure many() begin select 1; update t set n = 5; select 'b', null from t limit 3; select 2 where false; end",
        "create procedure late() begin select 1; signal sqlstate '45000' set message_text = 'after the rows'; end",
    )
    return name


@pytest.fixture
def connection(server: Server, base: str) -> Iterator[pymysql.Connection[Any]]:
    with closing(server.connect(database=base, charset="utf8mb4")) as made:
        yield made


def ours(connection: Any, sql: str, timeout: float = 30.0) -> list[Any]:
    results = drive(BlockingDriver("there", connection).query(sql, timeout))
    return [tuple(rows) for rows in results]


def theirs(connection: Any, sql: str) -> list[Any]:
    connection.query(sql)
    found: list[Any] = []
    while True:
        if connection._result.rows is not None:
            found.append(connection._result.rows)
        if not connection._result.has_next:
            return found
        connection.next_result()


@pytest.mark.parametrize("sql", STATEMENTS)
def test_it_reads_what_pymysql_reads(connection: pymysql.Connection[Any], sql: str) -> None:
    assert ours(connection, sql) == theirs(connection, sql)
    assert ours(connection, sql) == theirs(connection, sql)  # and leaves nothing unread


class Pieces(io.RawIOBase):
    """What a socket receives, in small pieces."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sizes = cycle((1, 2, 3, 700, 1, 4, 5))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer, min(len(buffer), next(self._sizes)))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_it_does_not_matter_in_which_pieces_an_answer_arrives(
    connection: pymysql.Connection[Any], sql: str
) -> None:
    expected = ours(connection, sql)
    broken_up: Any = connection
    broken_up._rfile = io.BufferedReader(Pieces(broken_up._sock))
    assert ours(connection, sql) == expected
    assert ours(connection, sql) == expected


DONE = b"\x07\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (DONE + b"\x00", "more than its answer"),
        (DONE.replace(b"\x01", b"\x05"), "out of order"),
        (DONE[:-1], "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_an_answer_that_is_none_is_refused(sent: bytes, said: str) -> None:
    connection = SimpleNamespace(encoding="utf8", _rfile=io.BufferedReader(io.BytesIO(sent)))
    with pytest.raises(Failed, match=said):
        ResultReader(connection).results()


@pytest.mark.parametrize("size", [LONG, 0xFFFFFF - 5, 0xFFFFFF - 4, 0xFFFFFF - 3])
def test_a_value_longer_than_a_packet_is_read_whole(server: Server, base: str, size: int) -> None:
    ((before,),) = server.run("select @@global.max_allowed_packet")
    server.run(f"set global max_allowed_packet = {4 * LONG}")
    try:
        with closing(server.connect(database=base)) as connection:
            ((found,),) = ours(connection, f"select repeat('x', {size})")[0]
            assert len(found) == size
            assert ours(connection, "select 1") == [((1,),)]
    finally:
        server.run(f"set global max_allowed_packet = {before}")


def test_an_error_of_the_server_is_raised_and_leaves_the_connection_sound(
    connection: pymysql.Connection[Any],
) -> None:
    with pytest.raises(StoreUnavailable, match="after the rows"):
        ours(connection, "call late()")
    with pytest.raises(Again):
        ours(connection, "signal sqlstate '40001' set mysql_errno = 1213, message_text = 'deadlock'")
    assert ours(connection, "select 1") == [((1,),)]


def test_a_statement_that_an_operator_ends_says_so(
    server: Server, connection: pymysql.Connection[Any]
) -> None:
    driver = BlockingDriver("there", connection)
    driver.send("select 1 from t where sleep(30) = 0 limit 1", 30.0)
    asleep = f"select 1 from information_schema.processlist where id = {connection.thread_id()} and state = 'User sleep'"
    until(lambda: server.run(asleep))  # what is ended before it has begun says nothing
    server.run(f"kill query {connection.thread_id()}")
    with pytest.raises(Killed):
        driver.receive(30.0)
    assert ours(connection, "select 1") == [((1,),)]


def test_a_connection_that_ends_in_the_middle_is_broken(
    server: Server, connection: pymysql.Connection[Any]
) -> None:
    driver = BlockingDriver("there", connection)
    driver.send("do sleep(30)", 30.0)
    server.run(f"kill connection {connection.thread_id()}")
    with pytest.raises(Broken):
        driver.receive(30.0)
        ours(connection, "select 1")  # the first may have been the answer of the statement that was ended
    with pytest.raises(Broken):
        ours(connection, "select 1")


def test_a_server_that_is_silent_is_given_up_in_time(
    server: Server, connection: pymysql.Connection[Any]
) -> None:
    with at_most(1.0), pytest.raises(StoreUnavailable, match=r"did not answer within 0\.2 s"):
        ours(connection, "do sleep(30)", 0.2)


def test_a_server_that_asks_for_a_file_gets_none(server: Server, base: str) -> None:
    with closing(server.connect(database=base, local_infile=True)) as connection:
        with pytest.raises(Broken, match="asks for a file"):
            ours(connection, "load data local infile '/etc/hostname' into table t")
