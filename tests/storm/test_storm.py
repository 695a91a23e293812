"""A short storm over Redis, alone and in a quorum."""

from __future__ import annotations

import pytest

from tests.storm.short_storm import assert_nothing_forbidden

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", ["durable", "redlock"])  # the others: interlock lab chaos
def test_nothing_that_must_never_be_in_a_short_storm(kind: str) -> None:
    assert_nothing_forbidden(kind, ttl=0.6, faults=17, grants=100)
