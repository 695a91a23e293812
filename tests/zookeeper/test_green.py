"""Programs whose sockets and threads gevent has replaced: the promises are the same, because the connection stays on a thread of the system."""

from __future__ import annotations

import pytest

from tests.full import FULL
from tests.redis.test_green import program


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_store_keeps_every_promise_below_gevent() -> None:
    assert FULL
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120")
    done = program("gevent", "pytest", *options, "tests/zookeeper/test_conformance_sync.py", timeout=850)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
