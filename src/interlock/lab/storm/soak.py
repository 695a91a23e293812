"""A soak: storms over all stores for hours; it ends at the first thing that must never happen and did.

    python3 dev.py soak --hours 8 [--store KIND] [--seed N] [--file soak.jsonl]

Each round is one storm over one kind of servers, most of them on locks, every third on another synchronizer.
A line of JSON for each round goes into the file, from which `tally` makes the tables of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from interlock._support import clock
from interlock.errors import InterlockError
from interlock.lab.storm.chaos import StormResult, chaos, keep_history
from interlock.lab.storm.deployments import KINDS, UnknownKind
from interlock.lab.storm.director import Progress, Storm
from interlock.lab.storm.resources import Synchronizer
from interlock.lab.storm.tally import summary

ROUND_S = 90.0
OTHERS: tuple[Synchronizer, ...] = ("rwlock", "semaphore", "election", "register")
REFUSED_BY: dict[str, tuple[str, ...]] = {"semaphore": ("redlock",), "register": ("redlock",)}
"""The kinds that refuse a synchronizer: majorities settle no more than pairwise conflicts."""


def rounds(seed: int, kinds: Sequence[str]) -> Iterator[tuple[str, Storm]]:
    """The kind and the storm of each round, for ever; every third is about something else than locks."""
    chance = Random(seed)
    number = 0
    while True:
        for kind in kinds:
            number += 1
            others = _others(kind)
            synchronizer = "lock" if number % 3 else others[number // 3 % len(others)]
            storm = Storm(seed=chance.randrange(1, 10**6), synchronizer=synchronizer, seconds=ROUND_S)
            yield kind, storm


def _others(kind: str) -> list[Synchronizer]:
    return [one for one in OTHERS if kind not in REFUSED_BY.get(one, ())]


class Soak:
    """Plays rounds until the time is over, and writes down each."""

    def __init__(self, file: Path, hours: float) -> None:
        self._file = file
        self._end = clock.now() + hours * 3600
        self._until = datetime.now() + timedelta(hours=hours)
        self.rounds = list[dict[str, Any]]()
        self.stopped = False  # by something that must never be

    def run(self, planned: Iterator[tuple[str, Storm]]) -> None:
        for kind, storm in planned:
            if clock.now() >= self._end:
                return
            storm.watching = self._sayer(kind)
            result = chaos(kind, storm)
            self._write(result)
            if result.code == 1:
                self.stopped = True
                return

    def _sayer(self, kind: str) -> Callable[[Progress], None]:
        return lambda progress: self._say(kind, progress)

    def _say(self, kind: str, progress: Progress) -> None:
        """One line that says how far it is, redrawn on a terminal."""
        if not sys.stdout.isatty():
            return
        grants = sum(int(one["numbers"].get("grants", 0)) for one in self.rounds) + progress.grants
        faults = sum(sum(one["faults"].values()) for one in self.rounds) + progress.faults
        told = f"until {self._until:%H:%M}: {len(self.rounds)} rounds, {grants:,} grants, {faults:,} faults"
        print(f"\r{told}; {kind}: {progress.last}\x1b[K", end="", flush=True)

    def _write(self, result: StormResult) -> None:
        line: dict[str, Any] = {**result.pack(), "commit": commit(), "load": round(os.getloadavg()[0], 1)}
        self.rounds.append(line)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        numbers = line["numbers"]
        told = "skipped" if result.skipped else "BROKE OFF" if result.failure else "clean"
        if result.code == 1:
            told = "VIOLATION"
        if sys.stdout.isatty():
            print("\r\x1b[K", end="")
        seconds, grants = f"{result.took:.0f} s", f"{numbers.get('grants', 0):.0f} grants"
        faults = f"{sum(line['faults'].values())} faults"
        why = f"  {line['why']}" if line["why"] else ""
        print(f"{told:<10} {result.kind:<11} {result.storm.synchronizer:<10} {seconds:>6}  {grants:>12}  "
              f"{faults:>10}  seed {result.storm.seed}{why}", flush=True)  # fmt: skip
        if result.history is not None and result.code == 1:
            kept = keep_history(result.history, self._file.parent)
            print("\n".join(line["violations"][:10]))
            print(f"the history is in {kept}\nagain: {result.command}")


def commit() -> str:
    """The commit of the code that runs, where it is a checkout."""
    told = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
    )
    return told.stdout.strip() if told.returncode == 0 else ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("dev.py soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0, metavar="H")
    parser.add_argument("--store", action="append", metavar="KIND", help=f"one of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="decides about all rounds (1)")
    parser.add_argument("--file", type=Path, default=Path("soak.jsonl"), help="one line a round (soak.jsonl)")
    asked = parser.parse_args(argv)
    kinds = asked.store or list(KINDS)
    try:
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownKind(kind)
    except InterlockError as error:
        parser.error(str(error))
    soak = Soak(asked.file, asked.hours)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started it in the background
        signal.signal(number, signal.default_int_handler)
    try:
        soak.run(rounds(asked.seed, kinds))
    except KeyboardInterrupt:
        print("\ninterrupted: all servers and workers were ended")
    print("\n".join(["", *summary(soak.rounds)]))
    return 1 if soak.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
