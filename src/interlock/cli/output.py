"""The output of a command: text or JSON, with colours only on a terminal."""

from __future__ import annotations

import os
from typing import Any, TextIO

from interlock._support.wording import printable

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Unwritable(Exception):
    """Standard output is closed, or what stands behind it takes nothing more."""

    def __init__(self, why: str) -> None:
        super().__init__(f"standard output cannot be written ({why})")


class Output:
    """Standard output and error of one command; a stream that was closed when it started is None."""

    def __init__(self, out: TextIO | None, err: TextIO | None, *, json: bool) -> None:
        self.json = json
        self._out = out
        self._err = err
        self.terminal = _is_terminal(out)
        self.watched = self.terminal or _is_terminal(err)  # a person reads what is said
        self._coloured = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """Columns to fit into; None for a pipe or a file, which take lines of any length."""
        if not self.terminal:
            return None
        return self.size[0]

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal now; $COLUMNS and $LINES count first, as in the shell."""
        try:
            columns, rows = os.get_terminal_size(1 if self._out is None else self._out.fileno())
        except (OSError, ValueError):
            columns, rows = 80, 24
        return _asked("COLUMNS") or columns or 80, _asked("LINES") or rows or 24

    @property
    def drawable(self) -> bool:
        """Whether a picture can be drawn in place."""
        return self.terminal and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def unicode(self) -> bool:
        """Whether it can show more than letters."""
        return (getattr(self._out, "encoding", None) or "").lower().replace("-", "").startswith("utf")

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self._coloured and text else text

    def line(self, text: str) -> None:
        """One line, at once: whoever reads a pipe is waiting for it.

        Raises `Unwritable` if it cannot be written.
        """
        self.raw(text + "\n")

    def raw(self, text: str) -> None:
        """Text as it stands, for whoever draws on a terminal. Raises as `line` does."""
        if self._out is None:
            raise Unwritable("it is closed")
        try:
            _write(self._out, text)
        except BrokenPipeError:
            raise  # a reader that has enough is no trouble
        except OSError as error:
            raise Unwritable(error.strerror or str(error)) from None

    def document(self, document: Any) -> None:
        """One JSON document on one line. Escaped, so that it is right in any encoding."""
        self.line(_dumps(document))

    def say(self, sentence: str) -> None:
        """A sentence for whoever started this, not for whoever reads its output."""
        self._write_error(f"interlock: {printable(sentence)}")

    def event(self, name: str, **data: Any) -> None:
        """Report an event of a run to programs, as a line of JSON on standard error."""
        self._write_error(_dumps({"event": name, **data}))

    def error(self, sentence: str, code: int) -> None:
        if self.json:
            self.event("error", message=sentence, code=code)
        else:
            self.say(sentence)

    def warn(self, sentence: str) -> None:
        """A sentence for whoever started this; a program that asked for JSON gets it as an event."""
        if self.json:
            self.event("warning", message=sentence)
        else:
            self.say(sentence)

    def _write_error(self, line: str) -> None:
        if self._err is None:
            return
        try:
            _write(self._err, line + "\n")
        except (OSError, ValueError):
            pass  # nobody reads it; a run must not fail for that


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _asked(name: str) -> int:
    """A size that the environment asks for; 0 if it does not."""
    asked = os.environ.get(name, "")
    return int(asked) if asked.isdigit() and asked.isascii() else 0


def _write(stream: TextIO, text: str) -> None:
    """In one piece: two threads, or two processes on one terminal, must not mix within a line."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _dumps(document: Any) -> str:
    from json import dumps

    return dumps(document)
