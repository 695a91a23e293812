"""Programs whose sockets and threads gevent has replaced: the promises are the same, because the connection stays on a thread of the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.environment import environment
from tests.full import FULL
from tests.patience import PATIENCE
from tests.redis.green_program import program

HUBS = """
from gevent import monkey
monkey.patch_all()
import gc, sys, time
from gevent.hub import Hub
import interlock
with interlock.connect(sys.argv[1], connect_timeout=60) as client:
    lease = client.lock("x", ttl=3).acquire(timeout=60)
    first = lease.deadline
    while lease.deadline == first:
        time.sleep(0.01)  # until the keeper has renewed it
    print(len([found for found in gc.get_objects() if isinstance(found, Hub)]), "hub")
    lease.release()
"""


def test_below_gevent_neither_the_connection_nor_the_keeper_has_a_hub_on_its_thread(url: str) -> None:
    """A program that ends while a thread of the system is in a hub of its own crashes."""
    pytest.importorskip("gevent")
    words = [sys.executable, "-c", HUBS, url]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=3 * PATIENCE)
    assert (done.stdout, done.returncode) == ("1 hub\n", 0), done.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_store_keeps_every_promise_below_gevent() -> None:
    assert FULL
    only = ("-m", "zookeeper", "-k", "not Async")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120", *only)
    done = program("gevent", "pytest", *options, "tests/every_store/test_conformance.py", timeout=850)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
