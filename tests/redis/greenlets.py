"""A program of greenlets: `python -m tests.redis.greenlets LIBRARY check URL`, or `... LIBRARY pytest ARGUMENTS`.

The library replaces sockets and threads before anything else is imported, as workers of Celery and gunicorn have it. `check`
prints what it found as JSON.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any


def replace(library: str) -> None:
    if library == "gevent":
        import_module("gevent.monkey").patch_all()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is no longer developed
            import_module("eventlet").monkey_patch()


def check(url: str) -> dict[str, Any]:
    import threading
    import time

    import interlock
    from interlock.testing.lag import stretched

    ttl = stretched(1.0)
    told: list[str] = []
    found: dict[str, Any] = {}
    with interlock.connect(url, ttl=ttl) as client, interlock.connect(url) as other:
        lease = client.lock("held", on_lost=lambda lease: told.append(lease.resource)).acquire()
        assert lease
        time.sleep(0.6)  # for longer than a connection counts as fresh
        began = time.monotonic()
        with client.lock("after a pause", timeout=10):
            found["after a pause"] = time.monotonic() - began

        passed: list[float] = []

        def wait() -> None:
            with other.lock("passed on", timeout=10):
                passed.append(time.monotonic())

        before = client.lock("passed on").acquire()
        assert before
        waiter = threading.Thread(target=wait)
        waiter.start()
        while len(client.inspect("passed on").standings) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        began = time.monotonic()
        before.release()
        waiter.join(10)
        found["passed on after"] = passed[0] - began

        end = time.monotonic() + 3 * ttl
        while time.monotonic() < end:
            pass  # it computes, and no other greenlet of this thread runs
        found["lost while computing"] = lease.lost.is_set()
        lease.release()

        evicted = client.lock("evicted", on_lost=lambda lease: told.append(lease.resource)).acquire()
        assert evicted
        other.evict("evicted", reason="to see who is told")
        began = time.monotonic()
        found["told"] = evicted.lost.wait(30)
        found["told after"] = time.monotonic() - began
        end = time.monotonic() + 10
        while not told and time.monotonic() < end:
            time.sleep(0.01)
        found["called back"] = told
    return found


if __name__ == "__main__":
    replace(sys.argv[1])
    if sys.argv[2] == "check":
        import json

        print(json.dumps(check(sys.argv[3])), flush=True)
    else:
        import pytest

        sys.exit(pytest.main(sys.argv[3:]))
