"""Programs whose sockets and threads gevent or eventlet have replaced: the promises are the same.

The tests run where the library is installed: gevent always, eventlet if somebody wants to know.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.full import FULL
from tests.redis.green_program import program

LIBRARY = pytest.mark.parametrize("library", ["gevent", "eventlet"])


@LIBRARY
def test_greenlets_that_pause_wait_and_compute_lose_nothing(url: str, library: str) -> None:
    done = program(library, "check", url, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("after a pause") < 5
    assert found.pop("passed on after") < 3, "nobody was woken, and all looked for themselves"
    assert found.pop("told after") < 10, "the keeper's thread did not wake the greenlet"
    assert found == {"lost while computing": False, "told": True, "called back": ["evicted"]}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_store_keeps_every_promise_below_gevent() -> None:
    """Of the sync face: asyncio has an event loop of its own, and needs no other."""
    wanted = (
        "not Async" if FULL else "not Async and (Claims or Renewals or Wakeups or TestLockAsMutex or Leases)"
    )
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120", "-m", "redis", "-k", wanted)
    done = program("gevent", "pytest", *options, "tests/every_store/test_conformance.py", timeout=850)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
