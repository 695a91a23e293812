"""Money moves between accounts while holders are paused: the small version of `tests.guards.transfers`."""

from __future__ import annotations

import pytest

from tests.guards.desks import PLACES
from tests.guards.transfers import run


@pytest.mark.chaos
@pytest.mark.parametrize("database", PLACES)
class TestTransfers:
    def test_without_a_guard_updates_are_lost(self, database: str) -> None:
        lost = any(not run(database, "none", 100, processes=4, paused=0.2).sound for _ in range(5))
        assert lost, "nothing was lost, so the other tests here show nothing"

    @pytest.mark.parametrize("form", ["table", "absolute"])
    def test_with_the_guard_first_every_committed_transfer_stands(self, database: str, form: str) -> None:
        verdict = run(database, form, 100, processes=4, paused=0.1)
        assert verdict.sound, str(verdict)
        assert verdict.report.committed == 100
        assert verdict.report.refused > 0, "nobody came too late, so nothing was shown"
