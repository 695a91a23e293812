"""What the user's pool lends goes back to it, whatever becomes of the step. The pool is one of the test: no server is needed."""

from __future__ import annotations

from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.user_connections import UserSource
from interlock.errors import Unreached


class Lender:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.patience: list[float] = []
        self.returned: list[tuple[str, bool]] = []

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        self.patience.append(timeout)
        if self.failure:
            raise self.failure
        return "lent", "connection"

    async def give_back(self, lent: Any, sound: bool) -> None:
        self.returned.append((lent, sound))


class Link:
    def __init__(self, lent: Any) -> None:
        self.lent = lent
        self.left = False

    def leave(self) -> None:
        self.left = True


def source(lender: Lender, adopt: Any = lambda lent, connection: Link(lent)) -> UserSource:
    return UserSource(lender, adopt, Threads(), lambda: "there", 7.0)


@pytest.mark.parametrize("sound", [True, False])
def test_a_link_is_left_and_given_back(sound: bool) -> None:
    lender = Lender()
    made = source(lender)
    link: Any
    link, new = drive(made.borrow(0.0, True))
    assert new
    drive(made.give_back(link, sound))
    assert link.left
    assert lender.returned == [("lent", sound)]
    assert lender.patience == [7.0]  # a patient caller has the time to connect


def test_a_connection_that_will_not_do_goes_back_as_unsound() -> None:
    def refuse(lent: Any, connection: Any) -> Any:
        raise Unreached("in use")

    lender = Lender()
    with pytest.raises(Unreached, match="in use"):
        drive(source(lender, refuse).borrow(0.0, True))
    assert lender.returned == [("lent", False)]


def test_what_the_pool_says_is_in_the_error() -> None:
    with pytest.raises(Unreached, match="there: no connection from the pool: pool exhausted"):
        drive(source(Lender(TimeoutError("pool\n exhausted"))).borrow(0.0, False))
