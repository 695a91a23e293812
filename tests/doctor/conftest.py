"""What the tests of a diagnosis share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test requires."""
    monkeypatch.delenv("INTERLOCK_REQUIRES", raising=False)
