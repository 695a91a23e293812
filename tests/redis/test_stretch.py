"""A grant that came with the wake-up lives only as long as the waiter's place, until it is renewed."""

from __future__ import annotations

import threading

import interlock
from interlock.testing.servers.redis import Server
from tests.patience import PATIENCE, until


def test_a_lease_that_is_not_renewed_gets_its_whole_ttl_after_a_hand_over(server: Server) -> None:
    with interlock.connect(server.url()) as holder, interlock.connect(server.url()) as client:
        first = holder.lock("stretched")
        first.acquire()
        taken: list[interlock.Lease] = []
        lock = client.lock("stretched", ttl=60, renew=False)

        def wait() -> None:
            lease = lock.acquire()
            assert lease
            lease.adopt()
            taken.append(lease)
            done.wait(PATIENCE)

        done = threading.Event()
        waiter = threading.Thread(target=wait)
        waiter.start()
        until(lambda: holder.inspect("stretched").waiters)
        first.release()
        until(lambda: taken and taken[0].remaining() > 50)
        done.set()
        waiter.join(PATIENCE)
        taken[0].release()
