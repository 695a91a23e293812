"""ZooKeeper in a storm: every fault once. The long storms are run on demand."""

from __future__ import annotations

import pytest

from tests.storm.faults import FAULTS
from tests.storm.storm import rage, scene
from tests.storm.zookeeper import TTL

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    with scene("zookeeper", TTL) as made:
        verdict = rage(made, seed=1, grants=100, faults=len(FAULTS["zookeeper"]), once=True)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS["zookeeper"])
