"""One node of a Cluster stops answering. Forty waiters on it time out; a lease on another node must not suffer.

What the waiters could not take back becomes a pending release each. They must not keep the keeper from renewing.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

import interlock
from interlock.backends.redis.wire.keys import slot
from interlock.testing.servers.cluster import SHARDS, SLOTS, fragile

WAITERS = 40


def name_on(shard: int, prefix: str) -> str:
    """A name whose slot this master has."""
    return next(
        name for n in range(10_000) if (slot(name := f"{prefix}{n}".encode()) * SHARDS // SLOTS) == shard
    ).decode()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.stopped_node", description=__doc__)
    parser.add_argument("--ttl", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    lost: list[str] = []
    ended: dict[str, int] = {}

    def wait(client: interlock.Client, name: str) -> None:
        try:
            result = type(client.lock(name, ttl=30).acquire(timeout=2)).__name__
        except interlock.InterlockError as error:
            result = type(error).__name__
        ended[result] = ended.get(result, 0) + 1

    # Otherwise all nodes refuse everything as soon as one is gone.
    with fragile(0, None, "--cluster-require-full-coverage", "no") as cluster:
        url = f"redis+cluster://127.0.0.1:{cluster.masters[1].port},127.0.0.1:{cluster.masters[2].port}"
        with interlock.connect(url) as client, interlock.connect(url) as other:
            stopped, healthy = name_on(0, "stopped"), name_on(1, "healthy")
            assert other.lock(stopped, ttl=300).acquire()
            leases = [
                client.lock(
                    name, ttl=options.ttl, on_lost=lambda lease: lost.append(lease.resource)
                ).acquire()
                for name in (healthy, name_on(2, "healthy"))
            ]
            threads = [threading.Thread(target=wait, args=(client, stopped)) for _ in range(WAITERS)]
            for thread in threads:
                thread.start()
            while len(client.inspect(stopped).standings) < 2:
                time.sleep(0.01)
            with cluster.masters[0].frozen():
                began, least = time.monotonic(), options.ttl
                while time.monotonic() - began < options.seconds:
                    time.sleep(0.05)
                    least = min(least, *(lease.remaining() for lease in leases if lease))
                states = [str(lease.state) for lease in leases if lease]
            for thread in threads:
                thread.join()
            print(
                f"{WAITERS} waiters on a stopped node ended with {ended}; {len(lost)} healthy leases lost {lost};"
            )
            print(
                f"they are {states} after {options.seconds:g} s, never less than {least:.1f} s of {options.ttl:g} left"
            )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
