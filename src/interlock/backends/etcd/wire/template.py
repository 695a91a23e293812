"""Messages of which all but some parts are the same each time: what is the same is encoded once.

A message is made by the usual functions, with blanks in place of the parts that differ, and is cut there. A
blank has the size of what it stands for, so the lengths in the message are right. It consists of bytes that
follow each other in no message: the first is in no text, and in a number the second never follows it.
"""

from __future__ import annotations

_BLANKS = (b"\xff\0", b"\xfe\0")


def blank(which: int, size: int) -> bytes:
    """A blank for a part of this size, at least 2; the two kinds of blanks tell two parts apart."""
    return (_BLANKS[which] * size)[:size]


def cut(message: bytes, first: bytes, second: bytes = b"") -> list[bytes]:
    """The parts of a message before, between and behind its blanks."""
    return (message.replace(second, first) if second else message).split(first)
