"""A short storm over each kind of servers: every fault it can suffer, once or more, in an order of the seed's."""

from __future__ import annotations

import pytest

from tests.storm.faults import FAULTS
from tests.storm.storm import rage, scene
from tests.storm.verdict import N3_PASSED_ON

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(180)]

# Defects that are known and not mended yet; an entry goes when its test in test_bounds passes.
KNOWN: dict[str, set[str]] = {"durable": {N3_PASSED_ON}, "redlock": {"N6", N3_PASSED_ON}}


@pytest.mark.parametrize("kind", ["durable", "redlock"])  # the others: python -m tests.storm
def test_nothing_that_must_never_be_in_a_short_storm(kind: str) -> None:
    with scene(kind, ttl=0.6) as made:
        verdict = rage(made, seed=1, grants=100, faults=len(FAULTS[kind]), once=True)
        assert not verdict.rules - KNOWN[kind], str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS[kind])
