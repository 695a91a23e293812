"""A short storm over one SQLite file."""

from __future__ import annotations

import pytest

from tests.storm.short_storm import assert_nothing_forbidden

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    assert_nothing_forbidden("sqlite", ttl=0.8, faults=6, grants=100)
