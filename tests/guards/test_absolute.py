"""The absolute form: the claim's own row is locked in the user's transaction, and nobody else is let in before it ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

import interlock
from interlock import StaleToken, Unsupported, guards
from interlock._core import cohort
from interlock._core.drive import drive
from interlock._core.presented import presented_all
from interlock._core.states import State
from interlock.errors import StoreUnfit
from interlock.guards.sql import checks
from interlock.guards.sql.recognition import transaction
from interlock.testing.lag import stretched
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
        lease.renew()
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


def test_the_token_of_a_released_lease_is_refused_while_an_heir_of_its_client_holds(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stand in one row: the store knows it by the first token of the turn."""
    monkeypatch.setattr(cohort, "TURN_S", PATIENCE)
    desk, claims = bank.desk(), claims_of(bank.client)
    heirs: list[interlock.Lease] = []
    held, go, done = threading.Event(), threading.Event(), threading.Event()

    def inherit() -> None:
        with bank.client.lock("account:1", timeout=PATIENCE) as heir:
            heirs.append(heir)
            held.set()
            go.wait(PATIENCE)
            heir.renew()
            held.set()
            done.wait(PATIENCE)

    def shown(token: int) -> None:
        desk.begin()
        guards.sql.guard(desk.session, "account:1", token, absolute=True, claims=claims)
        desk.rollback()

    lease = bank.client.lock("account:1").acquire()
    assert lease
    waiter = threading.Thread(target=inherit, daemon=True)
    waiter.start()
    until(lambda: bank.client.inspect("account:1").waiters)
    lease.release()
    assert held.wait(PATIENCE)
    with pytest.raises((StaleToken, Unsupported)):
        shown(lease.token)
    held.clear()
    go.set()
    assert held.wait(PATIENCE)
    shown(heirs[0].token)
    with pytest.raises(StaleToken):
        shown(lease.token)
    done.set()
    waiter.join(PATIENCE)


def test_a_token_that_the_store_cannot_know_is_refused_with_the_remedy(bank: Bank) -> None:
    if bank.database == "sqlite":
        pytest.skip("no claim in a SQLite file is passed on, so its token is always known")
    desk = bank.desk()
    with bank.client.lock("account:1") as lease:
        desk.begin()
        with pytest.raises(Unsupported, match=r"lease\.renew\(\)"):
            guards.sql.guard(
                desk.session, "account:1", lease.token, absolute=True, claims=claims_of(bank.client)
            )
    with bank.client.rwlock("book").write() as writer:
        desk.begin()
        guards.sql.guard(desk.session, "book", writer.token, absolute=True, claims=claims_of(bank.client))
        desk.rollback()


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


def test_a_part_of_a_guarded_lease_is_not_given_back_before_the_whole(bank: Bank) -> None:
    desk = bank.desk()
    with interlock.connect(bank.url) as other:
        semaphore, others = bank.client.semaphore("seats", 4), other.semaphore("seats", 4)
        lease = semaphore.acquire(permits=3)
        assert lease
        late = semaphore.acquire()
        guard(desk, lease)
        # The first permit would be that of the other lease, which is not given back either.
        with pytest.raises(Unsupported, match=r"^seats: .*absolute=True.*as a whole: lease\.release\(\)$"):
            semaphore.release(3)
        assert late
        assert (lease.permits, late.permits, lease.state, late.state) == (3, 1, State.HELD, State.HELD)
        if bank.database != "sqlite":  # there nobody can ask before the commit
            assert not others.acquire(blocking=False)
        desk.commit()
        # Nobody tells the client that the transaction is over.
        with pytest.raises(Unsupported):
            semaphore.release(2)
        semaphore.release(1)
        assert late.state is State.RELEASED
        semaphore.release(3)
        assert lease.state is State.RELEASED
        with others.acquire(permits=4, timeout=PATIENCE) or pytest.fail("was not released"):
            pass


def test_a_guarded_write_lock_that_becomes_a_read_lock_lets_no_reader_in_before_its_release(
    bank: Bank,
) -> None:
    desk = bank.desk()
    with interlock.connect(bank.url) as other:
        book = bank.client.rwlock("book")
        lease = book.write().acquire()
        assert lease
        assert book.read().acquire()
        guard(desk, lease)
        book.write().release()
        if bank.database == "sqlite":  # there nobody can ask before the commit
            desk.commit()
        assert other.rwlock("book").read().acquire(blocking=False) is None
        desk.commit()
        book.read().release()
        with other.rwlock("book").read():
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


@pytest.mark.parametrize("when", ["before the guard", "between guard and release"])
def test_a_waiter_of_the_same_client_is_not_let_in_by_a_release_before_the_commit(
    bank: Bank, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bank.database == "sqlite":
        pytest.skip("on SQLite the release waits for the transaction of its own thread")
    # On a busy machine, too, the waiter comes in time to inherit.
    monkeypatch.setattr(cohort, "TURN_S", PATIENCE)
    desk, seen = bank.desk(), threading.Event()

    def contend() -> None:
        with bank.client.lock("account:1", timeout=PATIENCE):
            seen.set()

    def stand_behind(lease: interlock.Lease) -> None:
        """Let the other thread ask the store, and become an heir if the lease has any."""
        waiter.start()
        until(lambda: bank.client.inspect("account:1").waiters)
        with suppress(AssertionError):
            until(lambda: lease._turn, 0.5)

    waiter = threading.Thread(target=contend, daemon=True)
    lease = bank.client.lock("account:1").acquire()
    assert lease
    if when == "before the guard":
        stand_behind(lease)
    guard(desk, lease)
    if when == "between guard and release":
        stand_behind(lease)
    lease.release()
    assert not seen.wait(0.5)
    desk.commit()
    assert seen.wait(PATIENCE)
    waiter.join(PATIENCE)


def test_a_lease_that_another_thread_releases_meanwhile_is_refused(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim may be an heir's by the time its row is looked for."""
    monkeypatch.setattr(cohort, "TURN_S", PATIENCE)
    desk, held, done = bank.desk(), threading.Event(), threading.Event()
    lease = bank.client.lock("account:1").acquire()
    assert lease
    shown = presented_all(lease, shared=True)  # it was held a moment ago

    def inherit() -> None:
        with bank.client.lock("account:1", timeout=PATIENCE):
            held.set()
            done.wait(PATIENCE)

    heir = threading.Thread(target=inherit)
    heir.start()
    until(lambda: bank.client.inspect("account:1").waiters)
    lease.release()
    assert held.wait(PATIENCE)
    desk.begin()
    with pytest.raises((StaleToken, interlock.NotHeld)):
        drive(checks.pin_claims(transaction(desk.session, asynchronous=False), shown, None), nested=True)
    desk.rollback()
    done.set()
    heir.join(PATIENCE)


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

    def test_a_file_that_was_attached_by_hand_is_refused(
        self, client: interlock.Client, tmp_path: Path
    ) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings, isolation_level=None)
        with client.lock("account:1") as lease:
            connection.execute(f"attach '{tmp_path}/locks.db' as interlock")
            connection.execute("begin")
            with pytest.raises(Unsupported, match=r"guards\.sql\.attach"):
                guards.sql.guard(connection, lease, absolute=True)
        connection.close()

    @pytest.mark.parametrize("how", ["deleted", "replaced", "shared memory"])
    @pytest.mark.parametrize("text", [str, bytes])
    def test_a_lock_file_that_was_deleted_or_replaced_since_it_was_attached_is_refused(
        self, tmp_path: Path, how: str, text: Any
    ) -> None:
        client = interlock.connect(f"sqlite:///{tmp_path}/locks.db")
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings, isolation_level=None)
        connection.text_factory = text
        guards.sql.attach(connection, client)
        lease = client.lock("account:1").acquire()
        assert lease
        connection.execute("begin")
        guards.sql.guard(connection, lease, absolute=True)
        connection.execute("rollback")
        for suffix in ("-shm",) if how == "shared memory" else ("", "-wal", "-shm"):
            (tmp_path / f"locks.db{suffix}").unlink()
        later: list[Any] = []
        other = interlock.connect(f"sqlite:///{tmp_path}/locks.db") if how == "replaced" else None
        if other is not None:
            later += [other.lock("account:1").acquire()]
        shows: list[tuple[Any, ...]] = [(lease,), ("account:1", lease.token), *((each,) for each in later)]
        for shown in shows:
            connection.execute("begin")
            with pytest.raises(StoreUnfit, match="deleted or replaced since") as refusal:
                guards.sql.guard(connection, *shown, absolute=True)
            assert str(tmp_path / "locks.db") in str(refusal.value)
            assert not connection.in_transaction
        with pytest.raises(StoreUnfit, match="deleted or replaced since"):
            guards.sql.attach(connection, client)
        connection.close()
        client.close()
        if other is not None:
            other.close()

    def test_a_second_lock_file_needs_a_name_of_its_own(
        self, client: interlock.Client, tmp_path: Path
    ) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings, isolation_level=None)
        guards.sql.attach(connection, client)
        with interlock.connect(f"sqlite:///{tmp_path}/others.db") as other, other.lock("account:1") as lease:
            for name in ("interlock", "INTERLOCK"):
                with pytest.raises(Unsupported, match="is the name of another file"):
                    guards.sql.attach(connection, other, schema=name)
            for name in ("main", "Temp"):
                with pytest.raises(ValueError, match="no name for an attached database"):
                    guards.sql.attach(connection, other, schema=name)
            guards.sql.attach(connection, other, schema="others")
            connection.execute("begin")
            guards.sql.guard(connection, lease, absolute=True)
            connection.execute("commit")
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

    def test_a_user_needs_select_and_update_on_the_claim_table_and_is_told_so(self, tmp_path: Path) -> None:
        bank, name = Bank("postgresql", tmp_path), f"u{uuid4().hex[:8]}"
        with psycopg.connect(**bank.place.settings, autocommit=True) as admin:
            admin.execute(f"create role {name} login")
            with bank.client.lock("account:1") as lease:
                store: Any = bank.client._core.store
                table: str = store.claim_table
                admin.execute(f"grant usage on schema {table.partition('.')[0]} to {name}")
                admin.execute(f"grant select on {table} to {name}")
                settings = {**bank.place.settings, "user": name}
                with closing(PsycopgDesk(replace(bank.place, settings=settings))) as desk:
                    with pytest.raises(StoreUnfit, match=f"grant select, update on {table}"):
                        guard(desk, lease)
                    admin.execute(f"grant update on {table} to {name}")
                    guard(desk, lease)
                    desk.rollback()
        bank.close()

    def test_asyncio(self, tmp_path: Path) -> None:
        place = PLACES["postgresql"](tmp_path)

        async def main() -> None:
            async with interlock.aio.connect(lock_url("postgresql", tmp_path)) as client:
                async with client.lock("account:1") as lease:
                    async with await psycopg.AsyncConnection.connect(**place.settings) as connection:
                        await guards.sql.aguard(connection, lease, absolute=True)

        asyncio.run(main())


class TestMariaDB:
    """A transaction reads at REPEATABLE READ by default there, and a locking read of several rows locks the gaps between them."""

    @pytest.fixture
    def bank(self, tmp_path: Path) -> Iterator[Bank]:
        bank = Bank("mariadb", tmp_path)
        yield bank
        bank.close()

    @contextmanager
    def waiter(self, bank: Bank) -> Iterator[None]:
        """Somebody else stands in the queue, and is gone after the block, in which the lock comes free."""

        def wait() -> None:
            with suppress(interlock.InterlockError), interlock.connect(bank.url) as third:
                with third.lock("account:1", timeout=PATIENCE):
                    pass

        before = len(bank.client.inspect("account:1").waiters)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        until(lambda: len(bank.client.inspect("account:1").waiters) > before)
        yield
        thread.join(PATIENCE)

    @contextmanager
    def others_come(self, bank: Bank) -> Iterator[None]:
        """Locks beside the guarded one are granted, and its queue takes newcomers."""
        with interlock.connect(bank.url) as other:
            for name in ("account:0", "account:1 ", "account:2"):
                with other.lock(name, timeout=stretched(3.0)):
                    pass
        with self.waiter(bank):
            yield

    @pytest.mark.parametrize(
        ("shown", "level"),
        [("lease", "REPEATABLE READ"), ("lease", "SERIALIZABLE"), ("number", "REPEATABLE READ")],
    )
    def test_a_guard_locks_the_row_of_its_claim_and_no_gap(self, bank: Bank, shown: str, level: str) -> None:
        desk, asked = bank.desk(), claims_of(bank.client)
        desk.run(f"set session transaction isolation level {level}")
        desk.commit()
        lease = bank.client.lock("account:1").acquire()
        assert lease
        with self.waiter(bank):
            if shown == "lease":
                guard(desk, lease)
            else:
                lease.renew()
                desk.begin()
                guards.sql.guard(desk.session, "account:1", lease.token, absolute=True, claims=asked)
            with self.others_come(bank):
                lease.renew()
                lease.check()
                desk.commit()
                lease.release()

    def test_so_does_the_guard_of_an_heir(self, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store knows its claim by the token with which the turn began."""
        monkeypatch.setattr(cohort, "TURN_S", PATIENCE)
        desk, guarded, done = bank.desk(), threading.Event(), threading.Event()
        heirs: list[interlock.Lease] = []

        def inherit() -> None:
            with bank.client.lock("account:1", timeout=PATIENCE) as heir:
                guard(desk, heir)
                heirs.append(heir)
                guarded.set()
                done.wait(PATIENCE)
                desk.commit()

        first = bank.client.lock("account:1").acquire()
        assert first
        waiter = threading.Thread(target=inherit, daemon=True)
        waiter.start()
        until(lambda: bank.client.inspect("account:1").waiters)
        until(lambda: first._turn)
        first.release()
        assert guarded.wait(PATIENCE)
        assert heirs[0].token == first.token + 1
        with self.others_come(bank):
            done.set()
        waiter.join(PATIENCE)

    def test_a_number_passes_in_a_transaction_whose_snapshot_is_older_than_the_signature(
        self, bank: Bank
    ) -> None:
        desk = bank.desk()
        with bank.client.lock("account:1") as lease:
            desk.begin()
            desk.balance()
            lease.renew()
            asked = claims_of(bank.client)
            guards.sql.guard(desk.session, "account:1", lease.token, absolute=True, claims=asked)
            with interlock.connect(bank.url) as other:
                assert other.lock("account:1").acquire(blocking=False) is None
            desk.commit()

    def test_the_fence_table_keeps_neighbours_apart_as_well(self, bank: Bank) -> None:
        one, two = bank.desk(), bank.desk()
        two.run("set session innodb_lock_wait_timeout = 1")
        for token in (1, 2):  # the row is made, and then changed
            for desk, name in ((one, "account:1"), (two, "account:2"), (two, "account:0")):
                guards.sql.guard(desk.session, name, token)
            one.commit()
            two.commit()

    def test_a_signature_that_waits_for_the_row_is_no_reason_to_blame_the_user(self, bank: Bank) -> None:
        """A renewal of a row that another transaction locks is kept beside it. The guard said that nobody had renewed."""
        desk, other, asked = bank.desk(), bank.desk(), claims_of(bank.client)
        lease = bank.client.lock("account:1").acquire()
        assert lease
        guard(other, lease)
        lease.renew()
        desk.begin()
        with pytest.raises(interlock.StoreUnavailable, match="run the transaction again"):
            guards.sql.guard(desk.session, "account:1", lease.token, absolute=True, claims=asked)
        desk.rollback()
        other.rollback()
        lease.renew()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", lease.token, absolute=True, claims=asked)
        desk.rollback()
        lease.release()

    def test_a_user_needs_select_on_the_claim_table_and_is_told_so(self, bank: Bank) -> None:
        name = f"u{uuid4().hex[:8]}"
        admin = bank.desk()
        admin.run(f"create user {name}@'%'")
        admin.run(f"grant select, insert, update on bank.account to {name}@'%'")
        place = replace(bank.place, settings={**bank.place.settings, "user": name})
        with bank.client.lock("account:1") as lease, closing(PyMySQLDesk(place)) as desk:
            with pytest.raises(StoreUnfit, match=r"grant select on `bank`\.`interlock_claim`"):
                guard(desk, lease)
            admin.run(f"grant select on bank.interlock_claim to {name}@'%'")
            guard(desk, lease)
            desk.rollback()
