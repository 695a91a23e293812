"""A transaction of MariaDB at REPEATABLE READ that has read something before its guard: it goes on reading what stood there
then, so it would overwrite what an earlier holder has committed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import Unsupported, guards
from tests.guards.desks import PLACES, Desk, PyMySQLDesk, SessionDesk
from tests.guards.transfers import claims_of, lock_url

ROW: dict[str, Any] = {"table": "account", "where": {"id": 1}}
Show = Callable[[Any, int], object]

FORMS: dict[str, Show] = {
    "fence": lambda session, token: guards.sql.guard(session, "account:1", token),
    "row": lambda session, token: guards.sql.guard_row(session, "account:1", token, **ROW),
    "changes": lambda session, token: guards.sql.update_row(
        session, "account:1", token, **ROW, changes={"balance": 1}
    ),
    "mark": lambda session, token: guards.sql.mark(session, "account:1", token, **ROW),
}


@pytest.fixture(params=[PyMySQLDesk, SessionDesk])
def desks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Desk, Desk]]:
    place = PLACES["mariadb"](tmp_path)
    both = request.param(place), request.param(place)
    yield both
    for desk in both:
        desk.rollback()
        desk.close()


@pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
class TestForms:
    def test_an_update_of_an_earlier_holder_is_not_overwritten(
        self, desks: tuple[Desk, Desk], show: Show
    ) -> None:
        early, late = desks
        late.run("select 1 from account limit 1")
        show(early.session, 1)
        early.run("update account set balance = balance - 1 where id = 1")
        early.commit()
        with pytest.raises(Unsupported, match="before its guard"):
            show(late.session, 2)
        late.rollback()
        show(late.session, 2)  # a new transaction, in which the guard is the first statement
        late.commit()

    def test_a_transaction_that_is_begun_with_its_snapshot_is_refused_as_well(
        self, desks: tuple[Desk, Desk], show: Show
    ) -> None:
        early, late = desks
        late.run("start transaction with consistent snapshot")
        show(early.session, 1)
        early.commit()
        with pytest.raises(Unsupported, match="before its guard"):
            show(late.session, 2)

    def test_what_was_read_before_does_no_harm_if_nobody_has_written_since(
        self, desks: tuple[Desk, Desk], show: Show
    ) -> None:
        early, late = desks
        for token in (1, 2, 2):
            late.run("select 1 from account limit 1")
            show(late.session, token)
            late.commit()
        show(early.session, 3)
        early.commit()

    def test_at_read_committed_every_read_is_new(self, desks: tuple[Desk, Desk], show: Show) -> None:
        early, late = desks
        late.run("set transaction isolation level read committed")
        late.run("select 1 from account limit 1")
        show(early.session, 1)
        early.run("update account set balance = 7 where id = 1")
        early.commit()
        show(late.session, 2)
        assert late.balance() == (7 if show is not FORMS["changes"] else 1)


@pytest.mark.parametrize("by_number", [False, True], ids=["lease", "number"])
def test_so_is_the_absolute_form(desks: tuple[Desk, Desk], tmp_path: Path, by_number: bool) -> None:
    early, late = desks
    with interlock.connect(lock_url("mariadb", tmp_path)) as client:

        def shown(lease: interlock.Lease) -> tuple[Any, ...]:
            return ("account:1", lease.token) if by_number else (lease,)

        asked = claims_of(client)
        client.lock("account:1").acquire()  # makes the tables
        client.evict("account:1", reason="the tables are made")
        late.run("select 1 from account limit 1")
        with client.lock("account:1") as lease:
            lease.renew()
            guards.sql.guard(early.session, *shown(lease), absolute=True, claims=asked)
            early.run("update account set balance = balance - 1 where id = 1")
            early.commit()
        with client.lock("account:1") as lease:
            lease.renew()
            with pytest.raises(Unsupported, match="before its guard"):
                guards.sql.guard(late.session, *shown(lease), absolute=True, claims=asked)
            late.rollback()
            guards.sql.guard(late.session, *shown(lease), absolute=True, claims=asked)
            assert late.balance() == 99
            late.rollback()
