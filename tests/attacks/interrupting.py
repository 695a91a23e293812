"""Interrupts in the midst of `__exit__`, by real signals: `python -m tests.attacks.interrupting [URL] [--tries 2000]`.

A handler that raises, as Ctrl-C or a time limit does, strikes at a random moment around the end of each body. The judge is
another client, which looks into the store half a ttl later: whatever is held by then was kept by nobody.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time

import interlock


class Struck(BaseException):
    """What the handler raises."""


def strike(number: int, frame: object) -> None:
    raise Struck


def attack(client: interlock.Client, name: str, ttl: float, chance: random.Random) -> bool:
    """Whether a body's end was struck."""
    try:
        with client.lock(name, ttl=ttl):
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 3e-4))
        time.sleep(0.001)  # for a strike that comes late
    except Struck:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.interrupting", description=__doc__)
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--ttl", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    chance = random.Random(options.seed)
    signal.signal(signal.SIGALRM, strike)
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:///{folder}/locks.db"
        client, judge = interlock.connect(url), interlock.connect(url)
        struck = odd = 0
        for number in range(options.tries):
            try:
                struck += attack(client, f"interrupted:{number}", options.ttl, chance)
            except Struck:  # late: between the body and the end of `attack`
                struck += 1
            except interlock.InterlockError as error:
                odd += 1
                print(f"{number}: {error!r}")
        print(f"{struck} of {options.tries} struck, {odd} errors; waiting half a ttl", flush=True)
        time.sleep(options.ttl / 2)
        held = list(judge.scan("interrupted:"))
        print(f"{len(held)} held half a ttl later {held[:5]}")
        client.close()
        judge.close()
    return 1 if held else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
