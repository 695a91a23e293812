"""Money moves between accounts while holders are paused: the small version of `tests.guards.transfers`."""

from __future__ import annotations

import pytest

from tests.guards.desks import PLACES
from tests.guards.transfers import run


@pytest.mark.chaos
@pytest.mark.parametrize("database", PLACES)
class TestTransfers:
    def test_without_a_guard_updates_are_lost(self, database: str) -> None:
        for _ in range(5):
            verdict = run(database, "none", 60, processes=4, paused=0.5)
            if not verdict.sound:
                return
        pytest.fail(f"nothing was lost, so the other tests here show nothing: {verdict}")

    @pytest.mark.parametrize("form", ["table", "row", "absolute"])
    def test_with_the_guard_first_every_committed_transfer_stands(self, database: str, form: str) -> None:
        verdict = run(database, form, 60, processes=4, paused=0.3)
        assert verdict.sound, str(verdict)
        assert verdict.report.committed == 60
        assert verdict.report.refused > 0, "nobody came too late, so nothing was shown"
