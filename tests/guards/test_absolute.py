"""The absolute form: the claim's own row is locked in the user's transaction, and nobody else is let in before it ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import interlock
from interlock import StaleToken, Unsupported, guards
from tests.guards.desks import (
    PLACES,
    Desk,
    DjangoDesk,
    PlainSQLiteDesk,
    PsycopgDesk,
    PyMySQLDesk,
    SessionDesk,
    psycopg,
)
from tests.guards.transfers import claims_of, lock_url
from tests.patience import PATIENCE, until

DESKS: dict[str, type[Desk]] = {"sqlite": PlainSQLiteDesk, "postgresql": PsycopgDesk, "mariadb": PyMySQLDesk}


class Bank:
    """A client and desks whose locks and data are in one database."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database = database
        self.place = PLACES[database](folder)
        self.url = lock_url(database, folder)
        self.client = interlock.connect(self.url)
        self.desks: list[Desk] = []

    def desk(self) -> Desk:
        desk = DESKS[self.database](self.place)
        if self.database == "sqlite":
            guards.sql.attach(desk.session, self.client)
        self.desks.append(desk)
        return desk

    def close(self) -> None:
        for desk in self.desks:
            desk.rollback()
            desk.close()
        self.client.close()


@pytest.fixture(params=DESKS)
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    bank = Bank(request.param, tmp_path)
    yield bank
    bank.close()


def guard(desk: Desk, *args: Any) -> None:
    desk.begin()
    guards.sql.guard(desk.session, *args, absolute=True)


def test_a_held_lease_passes(bank: Bank) -> None:
    desk = bank.desk()
    with bank.client.lock("account:1") as lease:
        guard(desk, lease)
        guards.sql.guard(desk.session, lease, absolute=True)
        desk.run("update account set balance = 90 where id = 1")
        desk.commit()
    assert desk.balance() == 90


def test_a_token_without_its_lease_passes_as_long_as_the_claim_stands(bank: Bank) -> None:
    desk, claims = bank.desk(), claims_of(bank.client)
    with bank.client.lock("account:1") as lease:
        for token in (lease.token, lease.token):
            desk.begin()
            guards.sql.guard(desk.session, "account:1", token, absolute=True, claims=claims)
            desk.commit()
        token = lease.token
    desk.begin()
    with pytest.raises(StaleToken) as refusal:
        guards.sql.guard(desk.session, "account:1", token, absolute=True, claims=claims)
    assert (refusal.value.token, refusal.value.accepted) == (token, 0)
    with bank.client.lock("account:1") as later:
        desk.begin()
        with pytest.raises(StaleToken) as refusal:
            guards.sql.guard(desk.session, "account:1", token, absolute=True, claims=claims)
        assert (refusal.value.token, refusal.value.accepted) == (token, later.token)


def test_a_claim_that_was_evicted_is_refused_and_the_transaction_dies(bank: Bank) -> None:
    desk = bank.desk()
    lease = bank.client.lock("account:1", renew=False).acquire()
    assert lease
    with interlock.connect(bank.url) as operator:
        operator.evict("account:1", reason="test")
    desk.begin()
    desk.run("update account set balance = 0 where id = 1")
    with pytest.raises(StaleToken):
        guards.sql.guard(desk.session, lease, absolute=True)
    desk.rollback()
    assert desk.balance() == 100


def test_nobody_is_let_in_before_the_transaction_ends_even_if_the_lease_lapses_within(bank: Bank) -> None:
    desk = bank.desk()
    lease = bank.client.lock("account:1", ttl=1.0, renew=False).acquire()
    assert lease
    guard(desk, lease)
    seen: list[tuple[str, float]] = []

    def contend() -> None:
        with interlock.connect(bank.url) as other:
            while True:
                try:
                    with other.lock("account:1", timeout=PATIENCE):
                        seen.append(("in", time.monotonic()))
                        return
                except interlock.StoreUnavailable:  # SQLite: the transaction stops all writers
                    continue

    contender = threading.Thread(target=contend)
    contender.start()
    until(lambda: lease.remaining() == 0.0)
    time.sleep(0.5)
    assert not seen
    desk.run("update account set balance = 90 where id = 1")
    ended = time.monotonic()
    desk.commit()
    contender.join(PATIENCE)
    assert [what for what, _ in seen] == ["in"]
    assert seen[0][1] >= ended


def test_a_lease_that_is_released_before_the_commit_lets_nobody_in_before_it(bank: Bank) -> None:
    if bank.database == "sqlite":
        pytest.skip("on SQLite the release waits for the transaction of its own thread")
    desk = bank.desk()
    with bank.client.lock("account:1") as lease:
        guard(desk, lease)
    with interlock.connect(bank.url) as other:
        assert other.lock("account:1").acquire(blocking=False) is None
        desk.commit()
        with other.lock("account:1", timeout=PATIENCE):
            pass


def test_a_pinned_claim_is_not_passed_on_within_its_client(bank: Bank) -> None:
    """That happens without asking the store, which alone would see that the claim is locked."""
    desk = bank.desk()
    with bank.client.lock("account:1") as lease:
        turn = lease._begin_turn(deque())  # as if others of this client had stood in line
        turn.passes = 15
        guard(desk, lease)
        assert turn.passes == 0
        desk.commit()


def test_the_holder_is_renewed_while_its_transaction_is_open(bank: Bank) -> None:
    if bank.database == "sqlite":
        pytest.skip("on SQLite a write transaction stops every renewal")
    desk = bank.desk()
    with bank.client.lock("account:1", ttl=1.5) as lease:
        guard(desk, lease)
        end = time.monotonic() + 4.0
        while time.monotonic() < end:
            lease.check()
            time.sleep(0.05)
        desk.commit()


def test_readers_beside_each_other_pass(bank: Bank) -> None:
    with bank.client.rwlock("book").read() as one, interlock.connect(bank.url) as other:
        with other.rwlock("book").read() as two:
            for lease in (one, two, one):
                desk = bank.desk()
                guard(desk, lease)
                desk.commit()


def test_a_lock_that_lives_elsewhere_is_refused(tmp_path: Path) -> None:
    with interlock.connect("memory://") as client, client.lock("account:1") as lease:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)
        with pytest.raises(Unsupported, match="lives in memory"):
            guards.sql.guard(connection, lease, absolute=True)
        connection.close()


class TestSQLite:
    def test_the_lock_file_must_be_attached(self, client: interlock.Client, tmp_path: Path) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)
        with client.lock("account:1") as lease:
            with pytest.raises(Unsupported, match=r"guards\.sql\.attach"):
                guards.sql.guard(connection, lease, absolute=True)
        connection.close()

    def test_a_deferred_transaction_takes_the_write_lock_as_well(
        self, client: interlock.Client, tmp_path: Path
    ) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings, isolation_level=None)
        guards.sql.attach(connection, client)
        guards.sql.attach(connection, client)  # it may be attached
        with client.lock("account:1") as lease:
            connection.execute("begin")
            guards.sql.guard(connection, lease, absolute=True)
            with closing(sqlite3.connect(tmp_path / "locks.db", timeout=0, isolation_level=None)) as other:
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("begin immediate")
            connection.execute("commit")
        connection.close()


class TestPostgreSQL:
    def test_above_read_committed_a_claim_that_ends_meanwhile_is_stale(self, tmp_path: Path) -> None:
        bank = Bank("postgresql", tmp_path)
        with psycopg.connect(**bank.place.settings) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            lease = bank.client.lock("account:1", renew=False).acquire()
            assert lease
            connection.execute("select balance from account")  # the snapshot
            with interlock.connect(bank.url) as operator:
                operator.evict("account:1", reason="test")
                with operator.lock("account:1"):
                    with pytest.raises(StaleToken):
                        guards.sql.guard(connection, lease, absolute=True)
            connection.rollback()
        bank.close()

    @pytest.mark.parametrize("kind", [PsycopgDesk, SessionDesk, DjangoDesk])
    def test_signs_of_parameters_in_the_name_of_the_schema_mean_nothing(
        self, kind: type[Desk], tmp_path: Path
    ) -> None:
        place, url = PLACES["postgresql"](tmp_path), lock_url("postgresql", tmp_path)
        odd = url + quote('100%s :a ::b %(c)s {d} "e"\\')
        with interlock.connect(odd) as client, closing(kind(place)) as desk:
            lease = client.lock("account:1").acquire()
            guard(desk, lease)
            desk.run("update account set balance = 80 where id = 1")
            desk.commit()
            assert desk.balance() == 80
            client.evict("account:1", reason="test")
            with pytest.raises(StaleToken):
                guard(desk, lease)
            desk.rollback()

    def test_asyncio(self, tmp_path: Path) -> None:
        place = PLACES["postgresql"](tmp_path)

        async def main() -> None:
            async with interlock.aio.connect(lock_url("postgresql", tmp_path)) as client:
                async with client.lock("account:1") as lease:
                    async with await psycopg.AsyncConnection.connect(**place.settings) as connection:
                        await guards.sql.aguard(connection, lease, absolute=True)

        asyncio.run(main())
