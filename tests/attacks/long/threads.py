"""Forty threads of a client take locks back to back, beside five leases that the same client holds. None may be lost."""

from __future__ import annotations

import argparse
import sys
import threading
import time

import interlock
from tests.attacks.long.stores import KINDS, opened


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.threads", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="redis")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=40)
    parser.add_argument("--ttl", type=float, default=3.0)
    options = parser.parse_args()
    lost: list[str] = []
    failed: list[str] = []
    pairs = [0] * options.threads
    ends = time.monotonic() + options.seconds

    def back_to_back(client: interlock.Client, number: int) -> None:
        try:
            while time.monotonic() < ends:
                with client.lock(f"t{number}", ttl=30):
                    pairs[number] += 1
        except BaseException as error:
            failed.append(repr(error))

    with opened(options.store) as url, interlock.connect(url, ttl=options.ttl) as client:
        locks = [client.lock(f"held{n}", on_lost=lambda lease: lost.append(lease.resource)) for n in range(5)]
        leases = [lock.acquire() for lock in locks]
        threads = [threading.Thread(target=back_to_back, args=(client, n)) for n in range(options.threads)]
        for thread in threads:
            thread.start()
        least = options.ttl
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            least = min(least, *(lease.remaining() for lease in leases if lease))
        print(
            f"{options.store}: {sum(pairs)} pairs on {options.threads} threads, the slowest had {min(pairs)}, {len(failed)} errors;"
        )
        print(
            f"{len(lost)} of 5 leases lost; the least that was left of a ttl of {options.ttl:g} s was {least:.2f} s"
        )
        if failed:
            print(failed[0])
    return 1 if lost or failed else 0


if __name__ == "__main__":
    sys.exit(main())
