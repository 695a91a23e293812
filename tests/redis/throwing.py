"""A program whose threads are struck by exceptions that another thread throws into them, as worker frameworks do at a time limit.

Prints how often they were struck, how many of twenty threads got their lock afterwards, how long that took, and which names
are still held when every ttl is over. It runs apart: what is thrown can strike the test's own machinery, too. Any store will do.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import threading
import time
from itertools import count

import interlock
from interlock.backends.redis.transport import pool
from interlock.errors import InterlockError
from tests.patience import PATIENCE

pool.MAX_CONNECTIONS = 3  # connections to Redis: those that are lost are missed sooner


class Thrown(BaseException):
    pass


def throw(thread: threading.Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Thrown))


class Working:
    """Threads that lock back to back, each time another lock, whatever strikes them."""

    def __init__(self, client: interlock.Client, seconds: float) -> None:
        self.client = client
        self.until = time.monotonic() + seconds
        self.struck = 0
        self.numbers = count()
        self.threads = [self.thread(number) for number in range(4)]

    def thread(self, number: int) -> threading.Thread:
        thread = threading.Thread(target=self.work, args=(f"x{number}",), daemon=True)
        thread.start()
        return thread

    def work(self, name: str) -> None:
        while time.monotonic() < self.until:
            try:
                while time.monotonic() < self.until:
                    with self.client.lock(
                        f"{name}-{next(self.numbers)}", ttl=2
                    ):  # what is left behind lapses
                        pass
            except (Thrown, InterlockError, RuntimeError):
                self.struck += 1

    def run(self, chance: random.Random) -> None:
        while time.monotonic() < self.until - 0.3:
            number = chance.randrange(4)
            if self.threads[number].is_alive():
                throw(self.threads[number])
            else:  # it was struck where it was caught
                self.threads[number] = self.thread(number)
            time.sleep(chance.random() * 0.002)
        for thread in self.threads:
            thread.join(PATIENCE)


def main(url: str, seconds: float) -> dict[str, object]:
    with interlock.connect(url, listener=lambda event: None) as client:
        with client.lock("warm"):
            pass  # what is imported when first used is imported now
        working = Working(client, seconds)
        working.run(random.Random(7))
        done: list[int] = []

        def one(number: int) -> None:
            with client.lock(f"y{number}", timeout=PATIENCE):
                done.append(number)

        others = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(20)]
        began = time.monotonic()
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(PATIENCE)
        took = time.monotonic() - began
        return {"struck": working.struck, "done": len(done), "took": took, "left": left(client)}


def left(client: interlock.Client) -> list[str]:
    """What stands although its ttl is over: nobody knows of it, or it is renewed for nobody."""
    end = time.monotonic() + 20
    while (names := list(client.scan())) and time.monotonic() < end:
        time.sleep(0.02)
    return names


if __name__ == "__main__":
    sys.unraisablehook = lambda unraisable: None
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))), flush=True)
