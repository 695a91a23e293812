"""A short storm over each kind of servers: every fault it can suffer, once or more, in an order of the seed's."""

from __future__ import annotations

import pytest

from interlock.testing.lag import stretched
from tests.storm.faults import FAULTS
from tests.storm.storm import rage, scene

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", ["durable", "redlock"])  # the others: python -m tests.storm
def test_nothing_that_must_never_be_in_a_short_storm(kind: str) -> None:
    with scene(kind, ttl=stretched(0.6)) as made:
        verdict = rage(made, seed=1, grants=100, faults=len(FAULTS[kind]), once=True)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS[kind])
