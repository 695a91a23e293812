"""Escapes what a terminal or a log would obey. Pure."""

from __future__ import annotations

JOINER = "\u200d"  # U+200D ZERO WIDTH JOINER: not printable by itself, but part of many emoji


def printable(text: str) -> str:
    """Escape every character that could move the cursor, ring the bell or start a new line.

    Notes and call sites come from other programs. They must not be able to draw on an operator's screen or to
    forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == JOINER
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )
