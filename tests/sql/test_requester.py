"""Which steps are sent again after which error, and what the last error says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.sql import steps
from interlock.backends.sql.dialect import Again, Broken, Demoted, NotInstalled
from interlock.backends.sql.requester import Requester
from interlock.backends.sql.steps import Rows
from interlock.errors import StoreUnavailable, Unreached


class Connection:
    """A connection, and the source that lends it: its answers are given beforehand."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.installed = self.drained = 0
        self.pace = ConnectPace(5.0)

    async def borrow(self, until: float, connecting_is_extra: bool) -> tuple[Any, bool]:
        return self, False

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return [(answer,)]

    async def install(self, timeout: float) -> None:
        self.installed += 1

    async def give_back(self, connection: Any, sound: bool) -> None: ...

    async def warm(self, timeout: float) -> None: ...

    def drain(self) -> None:
        self.drained += 1

    def discard(self) -> None: ...

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None: ...

    async def close(self) -> None: ...


def run(connection: Connection, step: str = steps.CLAIM, timeout: float = 5.0) -> Rows:
    runtime = Threads()
    return drive(Requester(connection, runtime).run(step, (), runtime.now() + timeout))


def test_a_step_that_did_nothing_is_sent_again_until_it_succeeds() -> None:
    assert run(Connection(Again("deadlock"), Again("deadlock"), Demoted("read-only"), "done")) == [("done",)]


def test_a_missing_table_is_created_once() -> None:
    connection = Connection(NotInstalled("no table"), "done")
    assert run(connection) == [("done",)]
    assert connection.installed == 1
    with pytest.raises(NotInstalled):
        run(Connection(NotInstalled("no table"), NotInstalled("no table")))


def test_a_step_whose_answer_was_lost_is_sent_again_once_unless_it_is_a_release_or_a_write() -> None:
    connection = Connection(Broken("reset"), "done")
    assert run(connection) == [("done",)]
    assert connection.drained == 1
    with pytest.raises(Broken, match="reset again"):
        run(Connection(Broken("reset"), Broken("reset again")))
    for step in (steps.RELEASE, steps.WRITE):
        with pytest.raises(Broken, match="reset"):
            run(Connection(Broken("reset"), "done"), step)


def test_after_a_lost_answer_nobody_is_told_that_nothing_was_done() -> None:
    with pytest.raises(Broken, match="reset; then no route"):
        run(Connection(Broken("reset"), Unreached("no route")))
    with pytest.raises(Broken, match="reset; then deadlock"):
        run(Connection(Broken("reset"), *[Again("deadlock")] * 9), timeout=0.1)


def test_the_error_of_a_last_try_without_time_names_why_the_others_failed() -> None:
    with pytest.raises(StoreUnavailable, match="read-only; then no answer") as caught:
        run(Connection(Demoted("read-only"), StoreUnavailable("no answer")))
    assert not isinstance(caught.value, Unreached)
    with pytest.raises(Unreached, match="read-only; then no route"):
        run(Connection(Demoted("read-only"), Unreached("no route")))
    with pytest.raises(Unreached, match=r"^read-only$"):
        run(Connection(Demoted("read-only"), Demoted("read-only")), timeout=0.15)


class SlowReadOnly(Connection):
    """A server that refuses writes, and takes a while to say so."""

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        if timeout < 0.05:
            raise StoreUnavailable("no answer")
        time.sleep(0.15)
        raise Demoted("read-only")


def test_a_slow_refusal_is_not_asked_for_again_without_the_time_for_its_answer() -> None:
    """Then nobody would know whether the last try was applied, and a register would send it again."""
    with pytest.raises(Unreached, match=r"^read-only$"):
        run(SlowReadOnly(), steps.WRITE, timeout=0.54)
