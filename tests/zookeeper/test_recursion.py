"""Calls near the recursion limit. A claim that they left would stand as long as its client's session, which is for ever."""

from __future__ import annotations

import pytest

import interlock
from interlock.testing.servers.zookeeper import Servers, steady
from tests.attacks.depths import acquires_near_the_limit
from tests.patience import until

pytestmark = pytest.mark.server


@pytest.mark.filterwarnings("ignore:coroutine", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_acquire_that_meets_the_recursion_limit_leaves_nothing_behind() -> None:
    servers: Servers = steady()
    url = servers.fresh()
    with interlock.connect(url) as client, interlock.connect(url) as judge:
        client.lock("warm").acquire()
        acquires_near_the_limit(client, judge)
        until(lambda: list(judge.scan()) == ["warm"])
