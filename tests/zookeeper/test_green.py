"""Programs whose sockets and threads gevent has replaced: the promises are the same, because the connection stays on a thread of the system."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.full import FULL
from tests.redis.test_green import program


def test_greenlets_that_pause_wait_and_compute_lose_nothing(url: str) -> None:
    """One of them computes for three times the ttl; the session and the leases are kept meanwhile."""
    done = program("gevent", "check", url, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("after a pause") < 5
    assert found.pop("passed on after") < 3, "nobody was woken, and all looked for themselves"
    assert found.pop("told after") < 10, "the keeper's thread did not wake the greenlet"
    assert found == {"lost while computing": False, "told": True, "called back": ["evicted"]}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_store_keeps_every_promise_below_gevent() -> None:
    assert FULL
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120")
    done = program("gevent", "pytest", *options, "tests/zookeeper/test_conformance_sync.py", timeout=850)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
