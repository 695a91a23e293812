"""A follower of ZooKeeper that is cut off from its leader: the rule that counts pings is convicted by it, and interlock's own is acquitted."""

from __future__ import annotations

import pytest

from tests.storm.storm import scene
from tests.storm.zookeeper import TTL, follower_that_answers_pings

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]


def test_whoever_counts_from_pings_is_convicted_by_a_follower_that_is_cut_off() -> None:
    with scene("zookeeper", TTL) as made:
        verdict = follower_that_answers_pings(made, "pinged")
        assert "E" in verdict.rules, str(verdict)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_interlock_is_acquitted_beside_a_follower_that_is_cut_off(face: str) -> None:
    with scene("zookeeper", TTL) as made:
        verdict = follower_that_answers_pings(made, face)
        assert not verdict.violations, str(verdict)
        assert verdict.numbers["accepted"] > 0, "nobody counted: the schedule shows nothing"
