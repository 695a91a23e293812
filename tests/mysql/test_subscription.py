"""Wake-ups: a ring ends the sleep of the process that is meant, at any moment, whoever rings; otherwise the mail is found by looking."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.sql.mysql.address import from_url
from interlock.backends.sql.mysql.dialect import MysqlDialect
from interlock.backends.sql.mysql.driver import BlockingDriver
from interlock.backends.sql.mysql.schema import Schema
from interlock.backends.sql.mysql.subscription import (
    LATE_S,
    MAX_READ_MAIL,
    MAX_SLEEP_S,
    MIN_MAIL_POLL_S,
    PROBE_S,
    MysqlSubscription,
)
from interlock.testing.lag import at_most
from interlock.testing.servers.mysql import Server
from interlock.urls import split
from tests.mysql.processlist import asleep
from tests.patience import PATIENCE, until


def installed(url: str) -> MysqlDialect:
    with interlock.connect(url) as client, client.lock("first"):
        pass
    return MysqlDialect(from_url(split(url)), 5.0)


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2]


def connected(server: Server) -> BlockingDriver:
    return BlockingDriver("there", server.connect())


def opened(dialect: MysqlDialect) -> MysqlSubscription:
    subscription = dialect.subscribe()
    assert isinstance(subscription, MysqlSubscription)
    return subscription


def send(server: Server, url: str, bell: str, message: str, *, ring: bool = True) -> None:
    """As a procedure does: mail in a transaction, then the ring."""
    prefix = url.partition("prefix=")[2]
    mail = f"insert into app.{prefix}mail (bell, message, sent) values ('{bell}', '{message}', unix_timestamp(now(6)))"
    server.run(mail, *([f"call app.{prefix}v2_ring('{bell}')"] if ring else []))


def test_every_message_arrives_once_whatever_the_subscription_is_doing(server: Server, url: str) -> None:
    subscription = opened(installed(url))
    messages = [f"c{number} {number}" for number in range(40)]

    def send_all() -> None:
        for message in messages:
            send(server, url, subscription.bell, message)

    sender = threading.Thread(target=send_all)
    sender.start()
    got: list[str] = []
    end = time.monotonic() + PATIENCE
    while len(got) < len(messages) and time.monotonic() < end:
        got += subscription.receive(1.0)
    sender.join()
    assert got == messages
    assert subscription._pause == MAX_SLEEP_S, "all of it was rung for"
    subscription.close()


def test_mail_that_is_rung_for_before_its_commit_arrives_with_the_commit(server: Server, url: str) -> None:
    """A release may ring before it commits. A look that begins in between waits for the commit: otherwise it would find nothing and sleep."""
    subscription = opened(installed(url))
    prefix = url.partition("prefix=")[2]
    got: list[Any] = []
    for moment in ("asleep", "before it looks"):
        with closing(server.connect()) as sender, sender.cursor() as cursor:
            listening = threading.Thread(target=lambda: got.append(subscription.receive(30.0)))
            if moment == "asleep":
                listening.start()
                until(lambda: asleep(server))
            sender.begin()
            cursor.execute(
                f"insert into {prefix}mail (bell, message, sent) values ('{subscription.bell}', 'qx', 0)"
            )
            cursor.execute(f"call {prefix}v2_ring('{subscription.bell}')")
            if moment != "asleep":
                listening.start()
            until(lambda: _looking(server))
            with at_most(0.5):
                sender.commit()
                until(lambda: got)
            listening.join()
            assert got.pop() == ["qx"], moment
    subscription.close()


def _looking(server: Server) -> bool:
    return bool(server.run("select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"))


def test_a_ring_ends_the_sleep_at_once(server: Server, url: str) -> None:
    subscription = opened(installed(url))
    got: list[Any] = []

    def listen() -> None:
        got.append((subscription.receive(30.0), time.monotonic()))

    listening = threading.Thread(target=listen)
    listening.start()
    until(lambda: asleep(server))
    with at_most(0.5):
        send(server, url, subscription.bell, "qx")
        until(lambda: got)
    listening.join()
    assert got[0][0] == ["qx"]
    subscription.close()


def test_mail_without_a_ring_is_found_and_the_subscription_looks_more_often_then(
    server: Server, url: str
) -> None:
    subscription = opened(installed(url))
    send(server, url, subscription.bell, "qx", ring=False)
    assert subscription.receive(5.0) == ["qx"]
    writing = threading.Timer(0.1, send, (server, url, subscription.bell, "qy"), {"ring": False})
    writing.start()
    assert subscription.receive(10.0) == ["qy"]
    assert subscription._pause == MIN_MAIL_POLL_S
    subscription.close()


def test_a_server_that_stands_still_is_tried_again(server: Server, url: str) -> None:
    """Seen on a busy machine: for two seconds neither the sleep nor a ring got anywhere."""
    installed(url)
    subscription = MysqlSubscription(connected(server), Schema(prefix_of(url)), "there")
    helper, frozen = connected(server), list[float]()

    def probe(sql: str) -> None:
        if not frozen:
            frozen.append(time.monotonic())
            with server.frozen():
                time.sleep(PROBE_S + 2 * LATE_S)
        drive(helper.query(sql, PATIENCE))

    subscription.open(probe)
    assert frozen
    assert subscription._longest == MAX_SLEEP_S
    subscription.close()


def test_a_ring_that_arrives_after_all_ends_the_looking(server: Server, url: str) -> None:
    subscription = opened(installed(url))
    subscription.look_often()
    subscription._rung_in_vain = True  # as a probe leaves it that found no ring
    listening = threading.Thread(target=lambda: subscription.receive(30.0))
    listening.start()
    until(lambda: _rings_until_healed(server, url, subscription))
    send(server, url, subscription.bell, "qx")
    listening.join()
    subscription.close()


def _rings_until_healed(server: Server, url: str, subscription: MysqlSubscription) -> bool:
    server.run(f"call app.{prefix_of(url)}v2_ring('{subscription.bell}')")
    return subscription._longest == MAX_SLEEP_S


def test_one_subscription_of_a_server_sleeps_and_rings_reach_the_others_too(server: Server, url: str) -> None:
    """All who sleep share a mutex of the server. With several, a ring that met it taken stood still for a second."""
    dialect = installed(url)
    subscriptions = [opened(dialect) for _ in range(4)]
    got: list[list[str]] = [[] for _ in subscriptions]

    def listen(place: int) -> None:
        while not got[place]:
            got[place] = subscriptions[place].receive(30.0)

    listening = [threading.Thread(target=listen, args=(place,)) for place in range(4)]
    for thread in listening:
        thread.start()
    states = "select state from information_schema.processlist where state in ('User sleep', 'User lock') order by 1"
    until(lambda: server.run(states) == (("User lock",),) * 3 + (("User sleep",),))
    for subscription in subscriptions:
        send(server, url, subscription.bell, "qx")
    for thread in listening:
        thread.join()
    assert got == [["qx"]] * 4
    assert [subscription._pause for subscription in subscriptions] == [MAX_SLEEP_S] * 4, (
        "all of it was rung for"
    )
    for subscription in subscriptions:
        subscription.close()


def test_a_bell_that_nobody_has_any_more_hits_nobody(server: Server, url: str) -> None:
    dialect = installed(url)
    gone, there = opened(dialect), opened(dialect)
    gone.close()
    send(server, url, gone.bell, "qx")
    began = time.monotonic()
    assert there.receive(0.5) == []
    assert time.monotonic() - began >= 0.5
    there.close()


def test_a_ring_never_ends_the_statement_of_another_program(server: Server, url: str) -> None:
    """The name of a lock of somebody else is no bell: bells have a prefix of ours."""
    installed(url)
    prefix = url.partition("prefix=")[2]
    with closing(server.connect()) as other, other.cursor() as cursor:
        cursor.execute("select get_lock('theirs', 0)")
        ringing = threading.Timer(0.1, server.run, (f"call app.{prefix}v2_ring('theirs')",))
        ringing.start()
        assert cursor.execute("select sleep(0.5)") == 1
        assert cursor.fetchall() == ((0,),)
        ringing.join()


def test_waiters_of_different_database_users_wake_each_other(server: Server) -> None:
    url = server.fresh_url()
    installed(url)
    for name in ("one", "two"):
        server.run(f"create user if not exists {name}@'%'", f"grant execute on app.* to {name}@'%'")
    prefix = url.partition("prefix=")[2]
    with (
        interlock.connect(server.url(prefix, user="one")) as one,
        interlock.connect(server.url(prefix, user="two")) as two,
    ):
        lease = one.lock("x").acquire()
        assert lease is not None
        got: list[Any] = []
        waiter = threading.Thread(target=lambda: got.append(two.lock("x").acquire(timeout=60)))
        waiter.start()
        until(lambda: one.inspect("x").waiters)
        until(lambda: asleep(server))
        with at_most(0.5):
            lease.release()
            waiter.join()
        assert got[0]


def test_where_rings_cannot_arrive_waiters_are_served_all_the_same_and_it_is_said_once(
    server: Server, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MysqlSubscription, "_rings_arrive", lambda self, probe: False)
    with interlock.connect(url) as one, interlock.connect(url) as two:
        for _ in range(3):
            lease = one.lock("x").acquire()
            assert lease is not None
            waiter = threading.Thread(target=lambda: two.lock("x", timeout=60).acquire().release())  # type: ignore[union-attr]
            waiter.start()
            until(lambda: one.inspect("x").waiters)
            lease.release()
            waiter.join()
    assert sum("wake-ups do not reach" in record.message for record in caplog.records) == 1


def test_read_mail_is_removed(server: Server, url: str) -> None:
    dialect = installed(url)
    subscription = opened(dialect)
    for number in range(MAX_READ_MAIL + 3):
        send(server, url, subscription.bell, f"c{number} 0")
        assert subscription.receive(5.0)
    subscription.close()
    prefix = url.partition("prefix=")[2]
    assert server.run(f"select count(*) from app.{prefix}mail") == ((0,),)
