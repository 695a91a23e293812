"""A Python program that the lab starts and hears by lines: frozen, killed, ended in good order.

It is told the folder of this package, so it runs the same code, and it ends with its parent. Ctrl-C is for
the parent alone, which ends everybody in good order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import interlock
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.process import freeze, start_program, thaw


def program_environment(**variables: str) -> dict[str, str]:
    """The environment of a program that runs the same interlock as this process."""
    source = str(Path(interlock.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


class ChildProcess:
    """A module at work in a process of its own. Subclasses say what a line of it means (`_hear`)."""

    def __init__(
        self,
        name: str,
        module: str,
        *words: str,
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        errors: Any = None,
    ) -> None:
        """`errors` is where its standard error goes, as `subprocess` has it; None: where ours goes."""
        self.name = name
        self._process = start_program(
            [*launcher, sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=program_environment(**(environment or {})),
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # a process that was killed while it spoke leaves half a line
                self._hear(line)
        self._hear("")

    def _hear(self, line: str) -> None:
        """Take in one line; an empty one says that the process has ended."""
        raise NotImplementedError

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP), and return when it has stopped."""
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.wait()
        self._listener.join(PATIENCE)

    def hang_up(self) -> None:
        """Close its standard input: it hears no more lines."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it is gone already

    def close(self) -> None:
        """End it, whatever it does."""
        if not self.ended:
            self.kill()
        self._listener.join(PATIENCE)
        self.hang_up()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
