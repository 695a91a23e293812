"""This process, and others that are told by a line and answer by a line."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0  # seconds without an answer after which a question counts as broken


class Another:
    """The far end: on the cores its maker was pinned to."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def tell(self, line: str = "go") -> None:
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def hear(self) -> str:
        heard, _, _ = select.select([self._stdout], [], [], PATIENCE)
        assert heard, f"the other process said nothing for {PATIENCE:g} s"
        line = self._stdout.readline()
        assert line, "the other process ended; what it said last stands above"
        return line


def busy() -> float:
    """Seconds of a core that this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def in_another(program: str, *arguments: str, source: Path = ROOT / "src") -> Iterator[Another]:
    """Run a program that says "ready" and then answers every line; it is killed in the end.

    `source` is where it finds interlock: that of another commit, for instance.
    """
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        another = Another(process.stdin, process.stdout)
        try:
            assert another.hear() == "ready\n"
            yield another
        finally:
            process.kill()
