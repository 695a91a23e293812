"""A server that hangs after a client has reached it: every call ends in its own time, and not in the time to connect."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import interlock
from interlock import aio
from interlock.errors import AcquireTimeout, StoreUnavailable
from interlock.testing.lag import at_most, stretched
from tests.attacks.servers.site import Site
from tests.patience import PATIENCE, until

TIMEOUT = 1.0
CALLS = 3  # the first finds its connection, the others must connect
LATE = 0.4  # seconds: the grace of a request, and that of taking its claim back
STALL = 0.3  # seconds for which a server pauses, as for a garbage collection or a slow disk
AT_ONCE = (
    1.0  # seconds for a connection, beside what the last one took, if the caller does not wait for the lock
)


class Hanging:
    """Each runs on every server; `site` is a fixture of the file that names the store."""

    def test_a_timeout_is_kept_and_a_try_without_waiting_ends_soon_from_the_second_call_on(
        self, site: Site
    ) -> None:
        with interlock.connect(site.url()) as client:
            began = time.monotonic()
            with client.lock("warm", timeout=PATIENCE):
                took = time.monotonic() - began
            with site.frozen():
                for _ in range(CALLS):
                    with at_most(TIMEOUT + stretched(LATE)), pytest.raises(StoreUnavailable):
                        client.lock("x").acquire(timeout=TIMEOUT)
                for _ in range(CALLS):
                    with at_most(took + AT_ONCE + stretched(LATE)), pytest.raises(StoreUnavailable):
                        client.lock("x").acquire(blocking=False)
            with client.lock("x", timeout=PATIENCE):
                pass

    def test_tasks_keep_their_timeouts_too(self, site: Site) -> None:
        async def main() -> None:
            async with aio.connect(site.url()) as client:
                began = time.monotonic()
                async with client.lock("warm", timeout=PATIENCE):
                    took = time.monotonic() - began
                with site.frozen():
                    for _ in range(CALLS):
                        with at_most(TIMEOUT + stretched(LATE)), pytest.raises(StoreUnavailable):
                            await client.lock("x").acquire(timeout=TIMEOUT)
                    for _ in range(CALLS):
                        with at_most(took + AT_ONCE + stretched(LATE)), pytest.raises(StoreUnavailable):
                            await client.lock("x").acquire(blocking=False)
                async with client.lock("x", timeout=PATIENCE):
                    pass

        asyncio.run(main())

    def test_a_waiter_whose_server_hangs_meanwhile_is_back_in_time(self, site: Site) -> None:
        url, waits = site.url(), 2 * TIMEOUT
        with interlock.connect(url) as holder, holder.lock("x", timeout=PATIENCE, ttl=60):
            if not holder._core.store.traits.fair:
                pytest.skip("it keeps no queue in which a waiter could be seen")
            with interlock.connect(url) as client:
                over = threading.Event()

                def hang() -> None:
                    until(lambda: holder.inspect("x").waiters)
                    with site.frozen():
                        over.wait(PATIENCE)

                hanging = threading.Thread(target=hang)
                hanging.start()
                try:
                    with at_most(waits + stretched(LATE)), pytest.raises((AcquireTimeout, StoreUnavailable)):
                        with client.lock("x", timeout=waits):
                            pass
                finally:
                    over.set()
                    hanging.join()


class Stalling:
    """A server that pauses for a moment: it does not fail who waits for the network, but not for the lock."""

    def test_a_try_without_waiting_outlives_a_stall_of_the_server(self, site: Site) -> None:
        """It had only the grace of a request, 0.15 s: any pause of the server failed it."""
        with interlock.connect(site.url()) as client:
            with client.lock("warm", timeout=PATIENCE):
                pass
            for _ in range(CALLS):
                thaw = threading.Timer(STALL, site.thaw)
                with site.frozen():
                    thaw.start()
                    lease = client.lock("x").acquire(blocking=False)
                    thaw.join()
                assert lease
                lease.release()

    def test_a_try_without_waiting_of_a_task_outlives_a_stall_too(self, site: Site) -> None:
        async def main() -> None:
            async with aio.connect(site.url()) as client:
                async with client.lock("warm", timeout=PATIENCE):
                    pass
                for _ in range(CALLS):
                    thaw = threading.Timer(STALL, site.thaw)
                    with site.frozen():
                        thaw.start()
                        lease = await client.lock("x").acquire(blocking=False)
                        thaw.join()
                    assert lease
                    await lease.release()

        asyncio.run(main())
