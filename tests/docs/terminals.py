"""Two terminals with a shell in each, typed into as a reader of the tutorial would."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

from tests.patience import PATIENCE

PROMPT = "tutorial@ "
BUSY = "the machine is overloaded"  # a line of interlock's log that readers do not see


class Terminal:
    """An interactive bash on a terminal of its own; what it shows is kept in `seen`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**environment, "PS1": PROMPT, "TERM": "dumb", "HISTFILE": "/dev/null"},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self.seen = ""
        self.expected: list[str] = []
        self.type("stty -echo")
        self.until_prompt()
        self.seen = PROMPT

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def read(self, seconds: float = 0.05) -> None:
        """Take what is on the screen by now."""
        while select.select([self._ours], [], [], seconds)[0]:
            try:
                part = os.read(self._ours, 1 << 16)
            except OSError:  # the shell has ended
                return
            if not part:
                return
            self.seen += part.decode(errors="replace").replace("\r", "")
            seconds = 0.0

    def until_prompt(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self.seen.endswith(PROMPT):
            self.read()
            assert time.monotonic() < end, f"no prompt: {self.seen}"

    def begin(self, command: str) -> None:
        """Type a command, once the last one has ended."""
        self.until_prompt()
        self.seen, self.expected = "", []
        self.type(command)

    @property
    def shown(self) -> str:
        """What the command has printed so far."""
        return self.seen.removesuffix(PROMPT)

    def shows(self) -> bool:
        """Wait until it shows what the page shows; whether it does. Where the page shows nothing, anything is right."""
        end = time.monotonic() + PATIENCE
        while True:
            self.read()
            if not self.expected or matches(self.expected, self.shown):
                return True
            if time.monotonic() > end:
                return False

    def close(self) -> None:
        for group in (os.tcgetpgrp(self._ours), self._process.pid):
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self._process.wait()
        os.close(self._ours)


def _own_terminal() -> None:
    """In the child: its input becomes the terminal that it is controlled by, so that `fg` works."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def matches(expected: list[str], shown: str) -> bool:
    """Whether a screen has these lines, but for blanks and what `…` hides."""
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip() and BUSY not in line]
    seen = "".join(f"{line}\n" for line in lines)
    return re.fullmatch("".join(map(_pattern, expected)), seen) is not None


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*"  # any lines, or none
    return re.escape(" ".join(line.split())).replace("…", ".*") + "\n"
