"""A program that takes and gives back a lock of its own, again and again: what the store does to it while others crowd it.

python -m tests.attacks.long.bystander URL    # until its input is closed: when each pair began, and how long it took
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import interlock
from interlock.testing.lag import _waited


class Bystander:
    """The program, for as long as a `with` lasts. Ask it afterwards."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pairs: list[tuple[float, float]] = []

    def __enter__(self) -> Bystander:
        words = [sys.executable, "-m", "tests.attacks.long.bystander", self._url]
        self._program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._program.stdout
        self._program.stdout.readline()  # it is connected
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._program.stdout
        for line in self._program.stdout:
            began, took = line.split()
            self._pairs.append((float(began), float(took)))

    def __exit__(self, *_: object) -> None:
        assert self._program.stdin
        self._program.stdin.close()
        self._program.wait()
        self._reader.join()

    def seen(self, since: float, until: float) -> str:
        """The median and the longest of the pairs that fell into a time, as a part of a sentence."""
        took = sorted(took for began, took in self._pairs if began + took >= since and began <= until)
        if not took:
            return "no pair"
        return f"{took[len(took) // 2] * 1e3:.1f} ms, at most {took[-1] * 1e3:.1f} ms ({len(took)} pairs)"


def main() -> None:
    over = threading.Event()

    def watch_input() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch_input, daemon=True).start()
    with interlock.connect(sys.argv[1], ttl=30) as client:
        with client.lock("bystander"):
            print(flush=True)
        thread = threading.get_native_id()
        while not over.is_set():
            waited, began = _waited(os.getpid(), thread), time.monotonic()
            with client.lock("bystander"):
                pass
            took = time.monotonic() - began
            # Not counted: how long it waited itself for a processor.
            print(began, took - (_waited(os.getpid(), thread) - waited), flush=True)
            time.sleep(0.002)


if __name__ == "__main__":
    main()
