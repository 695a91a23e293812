"""One line at the bottom of a terminal that says how far something is; nothing in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.cli.output import Output


class StatusLine:
    """Shown until it is wiped, which whoever writes a line of text does first."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown = ""

    def show(self, text: str) -> None:
        if self._output.drawable and not self._output.json and text != self._shown:
            room = (self._output.width or 80) - 1
            self._output.raw(f"\r{text[:room]}\x1b[K")
            self._shown = text

    def wipe(self) -> None:
        if self._shown:
            self._output.raw("\r\x1b[K")
            self._shown = ""
