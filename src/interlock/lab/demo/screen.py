"""The demo's output: redrawn in place on a terminal, plain lines for a pipe or a dumb terminal."""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import wrap
from typing import Protocol, TextIO

from interlock.lab.demo.scene import Line, Scene, picture

STYLES = {"": "", "bold": "1", "dim": "2", "good": "32", "bad": "1;31", "warn": "33", "name": "36"}
PLAIN_GLYPHS = str.maketrans("─█░", "-#.")


class Screen(Protocol):
    """What the story needs of it."""

    def draw(self, scene: Scene) -> None:
        """Show the state of things now."""
        ...

    def tell(self, elapsed: float, text: str) -> None:
        """Say that something happened; a screen whose pictures show it may leave it out."""
        ...

    def say(self, line: Line) -> None:
        """Say something that stays."""
        ...

    def close(self) -> None: ...


class Plain:
    """One line for each thing that happens, without escape codes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def draw(self, scene: Scene) -> None:
        """Nothing: a pipe gets what happens, not pictures of it."""

    def tell(self, elapsed: float, text: str) -> None:
        first = f"{elapsed:6.1f} s  "
        for line in wrap(text, 100, initial_indent=first, subsequent_indent=" " * len(first)):
            print(line, file=self._out, flush=True)

    def say(self, line: Line) -> None:
        print("".join(text for _, text in line).rstrip(), file=self._out, flush=True)

    def close(self) -> None:
        """Nothing to put back."""


class Terminal:
    """A picture redrawn in place. The last one stays, and what is said comes below it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0
        self._unicode = (out.encoding or "").lower().replace("-", "").startswith("utf")
        self._out.write("\x1b[?25l")  # no cursor jumping about

    def draw(self, scene: Scene) -> None:
        columns, rows = shutil.get_terminal_size()
        lines = picture(scene)[: max(1, rows - 1)]  # what scrolled away could not be redrawn
        text = "".join(f"{self._styled(line, columns - 1)}\x1b[K\n" for line in lines)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(f"\r{up}{text}\x1b[J")
        self._out.flush()
        self._drawn = len(lines)

    def tell(self, elapsed: float, text: str) -> None:
        """Nothing: the picture shows it."""

    def say(self, line: Line) -> None:
        self._out.write(self._styled(line, 10_000) + "\n")
        self._out.flush()
        self._drawn = 0

    def close(self) -> None:
        self._out.write("\x1b[0m\x1b[?25h")
        self._out.flush()

    def _styled(self, line: Line, room: int) -> str:
        """The line with its colours, cut to the room there is: a wrapped line would spoil the picture."""
        parts: list[str] = []
        for style, text in line:
            shown = text[: max(0, room)]
            room -= len(shown)
            if not self._unicode:
                shown = shown.translate(PLAIN_GLYPHS)
            parts.append(f"\x1b[{STYLES[style]}m{shown}\x1b[0m" if style and shown else shown)
        return "".join(parts)


def open_screen(out: TextIO) -> Screen:
    """A picture where one can be drawn and is wanted, plain lines everywhere else."""
    dumb = os.environ.get("TERM", "dumb") == "dumb" or "NO_COLOR" in os.environ
    if dumb or sys.platform == "win32" or not out.isatty():
        return Plain(out)
    return Terminal(out)
