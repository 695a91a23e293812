"""Where a command's words go: text or JSON, with colours only where somebody looks."""

from __future__ import annotations

import os
from typing import Any, TextIO

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Outlet:
    """Standard output and error of one command."""

    def __init__(self, out: TextIO, err: TextIO, *, json: bool) -> None:
        self.json = json
        self._out = out
        self._err = err
        self.terminal = _is_terminal(out)
        self._coloured = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """Columns to fit into; None for a pipe or a file, which take lines of any length."""
        if not self.terminal:
            return None
        asked = os.environ.get("COLUMNS", "")
        if asked.isdigit() and int(asked) > 0:
            return int(asked)
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self._coloured and text else text

    def line(self, text: str) -> None:
        """One line, at once: whoever reads a pipe is waiting for it."""
        _write(self._out, text)

    def document(self, document: Any) -> None:
        """One JSON document on one line. Escaped, so that it is right in any encoding."""
        _write(self._out, _dumps(document))

    def say(self, sentence: str) -> None:
        """A sentence for whoever started this, not for whoever reads its output."""
        self._tell(f"interlock: {sentence}")

    def event(self, name: str, **data: Any) -> None:
        """What happens to a run, for programs: a line of JSON on standard error."""
        self._tell(_dumps({"event": name, **data}))

    def error(self, sentence: str, code: int) -> None:
        if self.json:
            self.event("error", message=sentence, code=code)
        else:
            self.say(sentence)

    def _tell(self, line: str) -> None:
        try:
            _write(self._err, line)
        except (OSError, ValueError):
            pass  # nobody reads it; a run must not fail for that


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _write(stream: TextIO, line: str) -> None:
    """In one piece: two threads, or two processes on one terminal, must not mix within a line."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def _dumps(document: Any) -> str:
    from json import dumps

    return dumps(document)
