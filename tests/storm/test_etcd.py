"""A short storm over an etcd cluster: every fault it can suffer, in an order of the seed's."""

from __future__ import annotations

import pytest

from interlock.testing.lag import stretched
from tests.storm.faults import FAULTS
from tests.storm.storm import rage, scene

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    with scene("etcd", ttl=stretched(0.6)) as made:
        verdict = rage(made, seed=1, grants=100, faults=len(FAULTS["etcd"]), once=True)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS["etcd"])
