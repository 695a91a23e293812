"""A terminal that is drawn on: on its second screen, so that the first is as before when it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType

from interlock.cli.frame import PLAIN, Line
from interlock.cli.output import Output
from interlock.cli.signals import Interrupted

ENTER = "\x1b[?1049h\x1b[?25l"  # the second screen, no cursor
LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
ENDING = ("SIGTERM", "SIGHUP")


def text(line: Line, output: Output) -> str:
    """One line with its colours, in glyphs that the output can show."""
    painted = "".join(output.paint(part, style) if style else part for style, part in line)
    return (painted if output.unicode else painted.translate(PLAIN)).rstrip()


class Screen:
    """Draws pictures in place while its body runs; whatever ends the body, the terminal is given back as
    it was.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> Screen:
        for name in ENDING:
            self._handle(name, self._end)
        self._handle("SIGTSTP", self._stop)
        self._output.raw(ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._output.raw(LEAVE)
        finally:
            for number, handler in self._before:
                signal.signal(number, handler)  # type: ignore[arg-type]  # what getsignal gave

    def draw(self, lines: Sequence[Line]) -> None:
        """Show the lines, in place of what was there."""
        shown = "\x1b[K\n".join(text(line, self._output) for line in lines)
        self._output.raw(f"\x1b[H{shown}\x1b[K\x1b[J")

    def _handle(self, name: str, handler: object) -> None:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            self._before.append((number, signal.getsignal(number)))
            signal.signal(number, handler)  # type: ignore[arg-type]  # one of the two below

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when we go on.

        Straight to the terminal: the signal may have struck in the middle of a write to the stream.
        """
        os.write(1, LEAVE.encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        os.write(1, ENTER.encode())
