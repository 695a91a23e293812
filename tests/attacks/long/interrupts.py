"""Exceptions that signals raise around the end of a body: Ctrl-C, or a handler as time limits have it.

Each strikes at a random moment around the end of a body. The judge is another client, which looks into the store half a
ttl later: whatever is held by then was kept by nobody.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import interlock
from tests.attacks.long.stores import KINDS, opened

LATEST = 4e-4  # seconds after the end of a body at which a strike comes at the latest


class Struck(BaseException):
    """What the handler raises."""


def strike(number: int, frame: object) -> None:
    raise Struck


def by_timer(after: float) -> None:
    """SIGALRM, whose handler raises."""
    signal.setitimer(signal.ITIMER_REAL, after)


class Typist:
    """Sends this process SIGINT, as a terminal does, so many seconds after it is asked to."""

    def __init__(self) -> None:
        self._asked: float | None = None
        self._ask = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._ask.wait():
            self._ask.clear()
            while (at := self._asked) is not None and time.perf_counter() < at:
                pass
            if at is not None:
                os.kill(os.getpid(), signal.SIGINT)

    def __call__(self, after: float) -> None:
        if after:
            self._asked = time.perf_counter() + after
            self._ask.set()
        else:
            self._asked = None


def statement(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with client.lock(name, ttl=ttl):
        arm()


def exit_stack(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with ExitStack() as stack:
        stack.enter_context(client.lock(name, ttl=ttl))
        arm()


def entered_twice(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    lock = client.rlock(name, ttl=ttl)
    with lock, lock:
        arm()


def permits(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with client.semaphore(name, 3, ttl=ttl):
        arm()


def readers(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with client.rwlock(name, ttl=ttl).read():
        arm()


def decorated(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    client.lock(name, ttl=ttl)(arm)()


def once(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with client.once(name, ttl=ttl):
        arm()


def several(client: interlock.Client, name: str, ttl: float, arm: Callable[[], None]) -> None:
    with client.multilock([name, f"{name}:2"], ttl=ttl):
        arm()


WAYS = (
    statement,
    statement,
    statement,
    exit_stack,
    entered_twice,
    permits,
    readers,
    decorated,
    once,
    several,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.interrupts", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument(
        "--ctrl-c", action="store_true", help="SIGINT instead of a handler of the program's own"
    )
    parser.add_argument("--strikes", type=int, default=2000, help="interrupts that hit, at least")
    parser.add_argument("--ttl", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    signal.signal(signal.SIGALRM, strike)
    arm: Callable[[float], None] = Typist() if options.ctrl_c else by_timer
    with opened(options.store) as url:
        client, judge = interlock.connect(url), interlock.connect(url)
        ways = [way for way in WAYS if way is not permits or client.traits.shares == "any"]
        struck = late = slow = tries = 0
        way = ways[0]
        odd: list[str] = []
        while struck < options.strikes:
            over = False
            try:  # also around what a late strike may hit
                tries += 1
                way = chance.choice(ways)
                strike_soon = partial(arm, chance.uniform(1e-6, LATEST))
                way(client, f"interrupted:{way.__name__}:{tries}", options.ttl, strike_soon)
                over = True
                time.sleep(0.001)  # for a strike that comes late
                arm(0)
                time.sleep(0)
            except (Struck, KeyboardInterrupt):
                struck, late = struck + (not over), late + over
            except interlock.StoreUnavailable:  # a busy machine, where `once` waits for nobody
                slow += 1
            except interlock.InterlockError as error:
                odd.append(f"{tries}: {way.__name__}: {error!r}")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(
            f"{options.store}: {struck} struck of {tries}, {late} more came too late, {slow} calls got no answer, {len(odd)} errors {odd[:3]}",
            flush=True,
        )
        time.sleep(options.ttl / 2)
        held = list(judge.scan("interrupted:"))
        print(f"{len(held)} held half a ttl later {held[:5]}")
        if held:
            time.sleep(options.ttl)
            print(f"a ttl later: {list(judge.scan('interrupted:'))[:5]}")
        client.close()
        judge.close()
    return 1 if held or odd else 0


if __name__ == "__main__":
    sys.exit(main())
