"""Guards in the user's own transaction: each form, at each database, through each library."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import interlock
from interlock import StaleToken, guards
from tests.guards.desks import Desk
from tests.patience import PATIENCE

OpenDesk = Callable[[], Desk]
WITHDRAW = "update account set balance = balance - 10 where id = 1"


def leave(desk: Desk) -> None:
    """End a transaction that a guard has ended: whatever the library says to a commit, nothing of it stands."""
    try:
        desk.commit()
    except Exception:
        desk.rollback()


class TestTableWide:
    def test_a_held_lease_passes_and_the_work_is_committed(
        self, open_desk: OpenDesk, client: interlock.Client
    ) -> None:
        desk = open_desk()
        with client.lock("account:1") as lease:
            desk.begin()
            guards.sql.guard(desk.session, lease)
            desk.run(WITHDRAW)
            desk.commit()
        assert open_desk().balance() == 90

    def test_the_same_token_passes_again_in_the_same_and_in_the_next_transaction(
        self, open_desk: OpenDesk
    ) -> None:
        desk = open_desk()
        for _ in range(2):
            desk.begin()
            guards.sql.guard(desk.session, "account:1", 7)
            guards.sql.guard(desk.session, "account:1", 7)
            desk.run(WITHDRAW)
            desk.commit()
        assert open_desk().balance() == 80

    def test_a_lower_token_is_refused_and_the_transaction_dies(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 34)
        desk.commit()
        desk.begin()
        desk.run(WITHDRAW)
        with pytest.raises(StaleToken) as refusal:
            guards.sql.guard(desk.session, "account:1", 33)
        assert (refusal.value.resource, refusal.value.token, refusal.value.accepted) == ("account:1", 33, 34)
        leave(desk)  # even if the program swallows the error
        assert open_desk().balance() == 100

    def test_after_a_refusal_the_desk_can_be_used_again(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 34)
        desk.commit()
        desk.begin()
        with pytest.raises(StaleToken):
            guards.sql.guard(desk.session, "account:1", 33)
        desk.rollback()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 35)
        desk.run(WITHDRAW)
        desk.commit()
        assert open_desk().balance() == 90

    def test_names_are_exact(self, open_desk: OpenDesk) -> None:
        names = ["a", "a ", "A", "á", "e", "é", "n" * 1024]
        desk = open_desk()
        desk.begin()
        for number, name in enumerate(names):
            guards.sql.guard(
                desk.session, name, 100 - number
            )  # falling: names that were taken for one would be refused
        desk.commit()

    def test_a_rolled_back_transaction_has_not_shown_its_token(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 34)
        desk.rollback()
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 33)
        desk.commit()

    def test_the_guard_keeps_others_out_until_the_commit(self, open_desk: OpenDesk) -> None:
        early, late = open_desk(), open_desk()
        early.begin()
        guards.sql.guard(early.session, "account:1", 33)
        seen: list[int] = []

        def second() -> None:
            desk = open_desk()  # in its own thread: sqlite3 and Django want that
            desk.begin()
            guards.sql.guard(desk.session, "account:1", 34)
            seen.append(desk.balance())
            desk.run(WITHDRAW)
            desk.commit()
            desk.close()

        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        assert not seen
        early.run(WITHDRAW)
        early.commit()
        other.join(PATIENCE)
        assert seen == [90]
        assert late.balance() == 80

    def test_a_lost_lease_is_refused_without_asking_the_database(
        self, open_desk: OpenDesk, client: interlock.Client
    ) -> None:
        desk = open_desk()
        with client.lock("account:1") as lease:
            pass
        with pytest.raises(interlock.NotHeld):
            guards.sql.guard(desk.session, lease)


class TestRowLevel:
    def test_the_row_keeps_the_highest_token(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        guards.sql.guard_row(desk.session, "account:1", 34, table="account", where={"id": 1})
        guards.sql.update_row(
            desk.session, "account:1", 34, table="account", where={"id": 1}, changes={"balance": 70}
        )
        desk.commit()
        assert desk.run("select balance, token from account order by id") == [(70, 34), (100, 0)]
        desk.commit()

    def test_a_lower_token_is_refused_and_the_transaction_dies(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        guards.sql.guard_row(desk.session, "account:1", 34, table="account", where={"id": 1})
        desk.commit()
        desk.begin()
        desk.run("update account set balance = 0 where id = 2")
        with pytest.raises(StaleToken) as refusal:
            guards.sql.update_row(
                desk.session, "account:1", 33, table="account", where={"id": 1}, changes={"balance": 70}
            )
        assert refusal.value.accepted == 34
        leave(desk)
        assert [open_desk().balance(account) for account in (1, 2)] == [100, 100]

    def test_the_same_values_and_token_again_are_accepted(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        for _ in range(2):  # MySQL counts no row the second time
            desk.begin()
            guards.sql.update_row(
                desk.session, "account:1", 34, table="account", where={"id": 1}, changes={"balance": 70}
            )
            desk.commit()
        assert desk.balance() == 70
        desk.commit()

    def test_a_row_that_is_not_there_is_an_error_of_its_own(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        with pytest.raises(LookupError, match="account has no row"):
            guards.sql.guard_row(desk.session, "account:9", 34, table="account", where={"id": 9})

    def test_a_condition_that_names_several_rows_is_refused(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        with pytest.raises(ValueError, match="2 rows"):
            guards.sql.guard_row(desk.session, "account:9", 34, table="account", where={"balance": 100})


class TestMarks:
    def mark(self, desk: Desk, token: int) -> guards.sql.Mark:
        desk.begin()
        mark = guards.sql.mark(desk.session, "account:1", token, table="account", where={"id": 1})
        desk.commit()
        return mark

    def test_whoever_marked_last_may_write(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        early, late = self.mark(desk, 33), self.mark(desk, 34)
        desk.begin()
        after = guards.sql.update_marked(desk.session, late, {"balance": 70})
        guards.sql.update_marked(desk.session, after, {"balance": 60})
        desk.commit()
        desk.begin()
        desk.run("update account set balance = 0 where id = 2")
        with pytest.raises(StaleToken) as refusal:
            guards.sql.update_marked(desk.session, early, {"balance": 10})
        assert (refusal.value.token, refusal.value.accepted) == (33, 34)
        leave(desk)
        assert [open_desk().balance(account) for account in (1, 2)] == [60, 100]

    def test_a_stale_holder_cannot_mark_over_a_later_one(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        late = self.mark(desk, 100)
        desk.begin()
        with pytest.raises(StaleToken) as refusal:
            guards.sql.mark(desk.session, "account:1", 99, table="account", where={"id": 1})
        assert (refusal.value.token, refusal.value.accepted) == (99, 100)
        leave(desk)
        desk.begin()
        guards.sql.update_marked(desk.session, late, {"balance": 70})
        desk.commit()
        assert open_desk().balance() == 70

    def test_a_mark_serves_one_change(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        mark = self.mark(desk, 33)
        desk.begin()
        guards.sql.update_marked(desk.session, mark, {"balance": 70})
        with pytest.raises(StaleToken):
            guards.sql.update_marked(desk.session, mark, {"balance": 70})


class TestMissingTable:
    def test_the_error_shows_the_statement_that_creates_it(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        desk.begin()
        desk.run(WITHDRAW)
        with pytest.raises(
            interlock.StoreUnfit, match=r"guards\.sql\.create.*create table if not exists .*other_fence"
        ):
            guards.sql.guard(desk.session, "account:1", 33, table="other_fence")
        leave(desk)
        assert open_desk().balance() == 100

    def test_a_table_of_another_name_is_created_and_used(self, open_desk: OpenDesk) -> None:
        desk = open_desk()
        guards.sql.create(desk.session, table="other_fence")
        guards.sql.create(desk.session, table="other_fence")  # it may be there
        desk.begin()
        guards.sql.guard(desk.session, "account:1", 33, table="other_fence")
        desk.commit()
        assert desk.run("select token from other_fence") == [(33,)]
        desk.commit()
