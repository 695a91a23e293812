"""A program of greenlets, whose sockets belong to the thread that made them."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from interlock.testing.servers.redlock import steady
from tests.environment import environment

HELD = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, time
import interlock

client = interlock.connect(sys.argv[1], ttl=2.0)
with client.lock("x"):
    keeper = client._core.store._keeper_connections._store._quorum.transport
    until = time.monotonic() + 60
    while not keeper._idle and time.monotonic() < until:
        time.sleep(0.01)
    made = [connection for one in keeper._idle for connection in one.connections]
    assert len(made) == 3, made
client.close()
assert all(connection.sock.fileno() < 0 for connection in made), "the keeper's connections are still open"
"""


def test_a_client_that_held_a_lock_is_closed() -> None:
    pytest.importorskip("gevent", exc_type=ImportError)
    words = [sys.executable, "-c", HELD, steady(3).url(f"{uuid4().hex}:")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
