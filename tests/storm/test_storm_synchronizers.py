"""A few faults beside the other synchronizers, on the store that has all of them without a server."""

from __future__ import annotations

import pytest

from interlock.lab.storm.resources import Synchronizer
from tests.storm.short_storm import assert_nothing_forbidden

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("synchronizer", ["rwlock", "semaphore", "election", "register"])
def test_nothing_that_must_never_be_beside(synchronizer: Synchronizer) -> None:
    assert_nothing_forbidden("sqlite", ttl=0.8, faults=3, synchronizer=synchronizer)
