"""Turns data into parts of a sentence, in the same way for errors, log lines and the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from interlock._support.printable import printable as printable
from interlock.model import Standing


def duration(seconds: float) -> str:
    """Format a span of time for people: `4 ms`, `0.3 s`, `41 s`, `3 min 20 s`, `2 h`, `2 h 5 min`, `3 d 4
    h`.
    """
    if 0 < seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < 86400:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86400, "d", whole % 86400 // 3600, "h")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def either(words: Iterable[str]) -> str:
    """Format a choice: `a`, `a or b`, `a, b or c`."""
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


def one_sentence(text: str) -> str:
    """Join the lines of a library's message: a line that begins a sentence follows a semicolon, an
    indented one may go on with it.
    """
    joined = ""
    for line in text.splitlines():
        words = " ".join(line.split()).rstrip("?.")
        if not words:
            continue
        if joined and line[0].isspace() and words[0].islower():
            joined += f" {words}"
        else:
            capital = joined and words[1:2].islower()  # no abbreviation, such as SSL
            joined += ("; " if joined else "") + (words[0].lower() + words[1:] if capital else words)
    return joined


def counted(number: int, noun: str) -> str:
    """Format a number of things: `1 claim`, `3 claims`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def held(holder: Standing) -> str:
    """Say since when and by whom a resource is held.

    For a lock of another program only its holder is known.
    """
    who = _who(holder)
    if holder.lingering:
        return _lingering(holder)
    return f"held {duration(holder.age)} by {who}, token {holder.token}" if holder.token else f"held by {who}"


def taken(holder: Standing | None) -> str:
    """Say when and by whom a resource was taken, or that `min_hold` still keeps it after its release."""
    if holder is None:
        return "the holder is not known"
    who = _who(holder)
    if holder.lingering:
        return _lingering(holder)
    if not holder.token:
        return f"held by {who}"
    return f"taken {duration(holder.age)} ago by {who}, token {holder.token}"


def _lingering(holder: Standing) -> str:
    """Say that a claim was released and stays only for its `min_hold`."""
    return f"released by {_who(holder)}, but kept for its min_hold: free in {duration(holder.lapses_in)}"


def _who(holder: Standing) -> str:
    return printable(str(holder.caller))
