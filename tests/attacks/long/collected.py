"""Generators with `with lock:` in reference cycles, collected at any moment, on several threads at once.

The garbage collector ends them in the midst of any line, also inside the guards of interlock. A thread that then waits
for a guard that it holds itself never goes on: the program notices that nothing moves, and prints where everybody stands.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Iterator

import interlock
from tests.attacks.long.stores import KINDS, opened

HUNG = 60.0  # seconds without a step


class Node:
    """Something in a reference cycle: only the garbage collector ends it."""

    def __init__(self, held: object) -> None:
        self.itself = self
        self.held = held


class Releases(Node):
    """An object whose end gives a lease back."""

    def __init__(self, held: interlock.Lease) -> None:
        super().__init__(held)
        self.lease = held

    def __del__(self) -> None:
        self.lease.release()


def body(lock: interlock.Lock) -> Iterator[None]:
    with lock:
        yield


def abandon(client: interlock.Client, name: str, number: int) -> None:
    """Leave something to the collector that holds a lock."""
    if number % 3:
        generator = body(client.lock(name))
        next(generator)
        Node(generator)
    else:
        lease = client.lock(name).acquire()
        assert lease
        Releases(lease)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.collected", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="memory")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=3)
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    rounds = [0] * options.threads
    failed: list[str] = []

    def work(client: interlock.Client, thread: int) -> None:
        try:
            while time.monotonic() < ends:
                rounds[thread] += 1
                abandon(client, f"abandoned:{thread}:{rounds[thread]}", rounds[thread])
                with client.lock(f"own:{thread}"), client.lock("everybody's"):
                    pass
        except BaseException as error:
            failed.append(repr(error))

    with opened(options.store) as url, interlock.connect(url) as judge:
        client = interlock.connect(url)
        gc.set_threshold(7, 2, 2)  # the collector runs in the midst of many lines
        threads = [
            threading.Thread(target=work, args=(client, n), daemon=True) for n in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        seen, since = 0, time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            if sum(rounds) != seen:
                seen, since = sum(rounds), time.monotonic()
            elif time.monotonic() - since > HUNG:
                print(f"{options.store}: hung after {seen} rounds", flush=True)
                faulthandler.dump_traceback(all_threads=True)
                return 1
        gc.set_threshold(700, 10, 10)
        gc.collect()
        until = time.monotonic() + 10
        while (left := list(judge.scan())) and time.monotonic() < until:
            time.sleep(0.01)
        print(
            f"{options.store}: {sum(rounds)} rounds on {options.threads} threads in {options.seconds:g} s, none hung;"
        )
        print(f"{len(left)} claims left {left[:5]}, {len(failed)} errors {failed[:3]}")
        client.close()
    return 1 if left or failed else 0


if __name__ == "__main__":
    sys.exit(main())
