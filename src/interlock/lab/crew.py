"""Plays several scenarios at once, each in a process of its own, so that none disturbs another's clocks."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from interlock.lab.child_process import program_environment
from interlock.lab.runner import played
from interlock.lab.scenario import Result
from interlock.lab.scenarios import load
from interlock.testing.servers.process import start_program

LOOK_S = 0.1  # seconds between two looks at whether somebody has finished
ENDING_S = 20.0  # seconds that a player has to end its servers after Ctrl-C


class Player:
    """One scenario at work in a process."""

    def __init__(self, name: str, folder: Path, options: dict[str, Any]) -> None:
        self.name = name
        self._file, self._log = folder / f"{name}.pickle", folder / f"{name}.log"
        with self._log.open("w") as log:
            self.process = start_program(
                [sys.executable, "-m", "interlock.lab.crew", name, str(self._file), repr(options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=program_environment(),
                start_new_session=True,  # Ctrl-C is for us; we pass it on
            )

    def result(self) -> Result:
        """What it found, once it has ended; it never ends without a result, unless it is killed."""
        if not self._file.exists():
            told = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            why = told[0] if told else f"its process ended with {self.process.returncode}"
            return Result(load(self.name), failure=why)
        found: Result = pickle.loads(self._file.read_bytes())  # our own child wrote it, into our own folder
        return found

    def interrupt(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> None:
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def _players() -> Iterator[list[Player]]:
    """Those at work; if anything goes wrong, all are interrupted, and end their servers."""
    at_work: list[Player] = []
    try:
        yield at_work
    finally:
        for player in at_work:
            player.interrupt()
        for player in at_work:
            player.end()


def all_played(
    names: Sequence[str],
    at_once: int,
    tick: Callable[[list[str], int], None],
    **options: Any,
) -> Iterator[Result]:
    """Play the scenarios, so many at once; yield each result when it is there.

    `tick` is called about ten times a second with the names of those at work and how many still wait.
    """
    import time

    waiting = list(names)
    with TemporaryDirectory(prefix="interlock-lab-") as folder, _players() as at_work:
        while waiting or at_work:
            while waiting and len(at_work) < at_once:
                at_work.append(Player(waiting.pop(0), Path(folder), options))
            for player in [one for one in at_work if one.process.poll() is not None]:
                at_work.remove(player)
                yield player.result()
            tick([player.name for player in at_work], len(waiting))
            time.sleep(LOOK_S)


def main(name: str, file: str, options: str) -> None:
    from ast import literal_eval

    result = played(load(name), **literal_eval(options))
    Path(file).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
