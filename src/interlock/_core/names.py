"""Which names a resource may have, and which words go with it: the same on every store. Pure."""

from __future__ import annotations

import re

from interlock.errors import InvalidName, InvalidSetting

MAX_NAME_BYTES = 1024
"""Bytes of UTF-8 in the longest name."""

MAX_WORDS_BYTES = 4096
"""Bytes of UTF-8 in a note, a candidate's value or an operator's reason."""

_FORBIDDEN = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"

_ADDRESS = "<.+? at 0x[0-9A-Fa-f]+>"

MAX_NAMES_REMEMBERED = 4096
"""Names that were found good and need not be looked through again."""

known: set[str] = set()


def checked_name(name: object) -> str:
    """The name of something that is made, as `printable_name` says; `InvalidName` if an address in memory
    is part of it.
    """
    if type(name) is str and name in known:
        return name
    name = printable_name(name)
    # `f"order:{order}"` of an object without a text of its own is another name in each process: nobody would
    # be excluded.
    if " at 0x" in name and (found := re.search(_ADDRESS, name)):
        raise InvalidName(
            f"{name[:80]}: {found[0][:60]} is an object's address, which differs in each process, so the "
            "name would exclude nobody; name the resource by something that stays the same, as in "
            "{order.id}"
        )
    if len(known) >= MAX_NAMES_REMEMBERED:
        known.clear()
    known.add(name)
    return name


def printable_name(name: object) -> str:
    """The name, if it is printable text of 1 to 1024 bytes; `InvalidName` or TypeError otherwise.

    Operators may ask for every name that a store can have, also for one that nothing is made with today.
    """
    if not isinstance(name, str):
        raise TypeError(f"a resource is named by a str, not {type(name).__name__}")
    name = _plain(name)
    if not name:
        raise InvalidName("a resource needs a name: got an empty string")
    # No forbidden character is printable. So few programs ever compile the pattern, which takes as long as a
    # twentieth of the import.
    if not str.isprintable(name) and (found := re.search(_FORBIDDEN, name)):
        kind = "a lone surrogate" if "\ud800" <= found[0] <= "\udfff" else "a control character"
        raise InvalidName(f"{ascii(name)[:80]}: {kind} at position {found.start()} cannot be part of a name")
    if len(name) > MAX_NAME_BYTES // 4 and (size := len(name.encode())) > MAX_NAME_BYTES:
        raise InvalidName(f"{name[:40]}…: a name has at most {MAX_NAME_BYTES} bytes of UTF-8, not {size}")
    return name


def _plain(text: str) -> str:
    """The code points of a text. A member of an enumeration, or of another subclass, has methods of its own:
    by `str(name)`, one who locks `Jobs.REPORT` and one who locks its value would not exclude each other.
    """
    return str.__str__(text)


def checked_note(note: object) -> str:
    """A note, if it is one line of printable text that every store can keep; InvalidSetting or TypeError
    otherwise.
    """
    words = checked_words(note, "a note")
    if not words.isprintable():
        raise InvalidSetting(f"a note is one line of printable text, not {ascii(words)[:80]}")
    return words


def checked_words(words: object, what: str) -> str:
    """The caller's own words, if every store can keep them word for word."""
    if not isinstance(words, str):
        raise TypeError(f"{what} is a str, not {type(words).__name__}")
    words = _plain(words)
    try:
        size = len(words.encode())
    except UnicodeEncodeError:
        raise InvalidSetting(f"{what} holds a lone surrogate: {ascii(words)[:80]}") from None
    if size > MAX_WORDS_BYTES or "\x00" in words:
        raise InvalidSetting(f"{what} has at most {MAX_WORDS_BYTES} bytes of UTF-8 and no NUL")
    return words
