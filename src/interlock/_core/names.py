"""Which names a resource may have: the same on every store, compared by exact code points. Pure."""

from __future__ import annotations

import re

from interlock.errors import InvalidName

LONGEST = 1024
"""Bytes of UTF-8 in the longest name."""

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def checked_name(name: object) -> str:
    """The name, if it is printable text of 1 to 1024 bytes; `InvalidName` or TypeError otherwise."""
    if not isinstance(name, str):
        raise TypeError(f"a resource is named by a str, not {type(name).__name__}")
    if not name:
        raise InvalidName("a resource needs a name: got an empty string")
    if found := _FORBIDDEN.search(name):
        kind = "a lone surrogate" if "\ud800" <= found[0] <= "\udfff" else "a control character"
        raise InvalidName(f"{ascii(name)[:80]}: {kind} at position {found.start()} cannot be part of a name")
    if len(name) > LONGEST // 4 and (size := len(name.encode())) > LONGEST:
        raise InvalidName(f"{name[:40]}…: a name has at most {LONGEST} bytes of UTF-8, not {size}")
    return str(name)  # a subclass's own equality must not decide who shares a lock
