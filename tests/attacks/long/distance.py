"""A Redlock of five nodes far away: a new client must get its first lock, sync and async, also with `blocking=False`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable

import interlock
from interlock import aio
from interlock.testing.servers.proxy import proxies, through
from interlock.testing.servers.redlock import quorum


def sync_first(url: str, blocking: bool) -> bool:
    with interlock.connect(url) as client:
        return client.lock("x").acquire(blocking) is not None


def async_first(url: str, blocking: bool) -> bool:
    async def main() -> bool:
        async with aio.connect(url) as client:
            return await client.lock("x").acquire(blocking) is not None

    return asyncio.run(main())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.distance", description=__doc__)
    parser.add_argument("--trips", type=float, nargs="*", default=[0.01, 0.025, 0.04, 0.09, 0.15, 0.3])
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    missed = 0
    faces: dict[str, Callable[[str, bool], bool]] = {"sync": sync_first, "async": async_first}
    with quorum() as servers:
        sync_first(servers.url(), True)  # so that the nodes are no new ones
        for trip in options.trips:
            with proxies([server.port for server in servers.all], round_trip=trip) as ways:
                for face, first in faces.items():
                    for blocking in (True, False):
                        taken, took = 0, []
                        for _ in range(options.tries):
                            began = time.monotonic()
                            try:
                                taken += first(through(ways, servers.url()), blocking)
                            except interlock.InterlockError as error:
                                print(repr(error))
                            took.append(time.monotonic() - began)
                        missed += options.tries - taken
                        print(
                            f"{trip * 1000:4.0f} ms, {face:>5}, blocking={blocking!s:<5}: {taken} of {options.tries} taken, "
                            f"connected, taken and released in {min(took):.2f} to {max(took):.2f} s",
                            flush=True,
                        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
