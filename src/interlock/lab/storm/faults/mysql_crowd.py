"""Many clients at once, each with connections of its own, at a server that has not enough of them.

    python -m interlock.lab.storm.faults.mysql_crowd URL CLIENTS TTL

Each takes a lock once. A clear error within its time is right, and so is a wait; a hang or another error is
not.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter

import interlock
from interlock.errors import InterlockError, StoreUnavailable

PATIENCE = 4.0  # seconds that each of them waits for the lock
LONGEST = PATIENCE + 150.0  # beyond this it hangs, also on a busy machine


def one(url: str, number: int, ttl: float, told: Counter[str]) -> None:
    try:
        with (
            interlock.connect(url, ttl=ttl) as client,
            client.lock(f"crowd-{number % 5}", timeout=PATIENCE) as lease,
        ):
            lease.check()
            time.sleep(0.01)
            told["held"] += 1
    except (StoreUnavailable, interlock.AcquireTimeout) as error:
        told[type(error).__name__] += 1
    except InterlockError as error:
        told[f"unexpected: {error!r}"] += 1


def main(url: str, clients: int, ttl: float) -> int:
    told: Counter[str] = Counter()
    threads = [threading.Thread(target=one, args=(url, n, ttl, told), daemon=True) for n in range(clients)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LONGEST
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    print(f"crowd of {clients}: {dict(told)}", flush=True)
    return 0 if sum(told.values()) == clients and not any("unexpected" in word for word in told) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
