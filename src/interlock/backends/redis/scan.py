"""Lists resources with SCAN, step by step, so that the server is never held up however many keys it has.

Redis keeps no index of locks, and an index of ours would cost every lock two writes. A string key is a lock
of ours if its value has our format. Another program's lock looks like any other string, and is listed only if
a claim of ours waits for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from interlock.backends.redis.wire.keys import Keys
from interlock.backends.redis.wire.packing import RECORD_START
from interlock.backends.redis.wire.resp import ErrorReply, command

KEYS_PER_STEP = b"500"  # keys that the server visits in one step
PEEK_BYTES = b"1023"  # bytes of a value that show whether it is ours
MAX_STEPS = 2**22  # two billion keys; a server that names a new cursor for ever would keep us for ever
MAX_REPEATED_CURSORS = 1000  # steps that may lead to a cursor that was there before
KEPT_S = 2.0  # seconds for which the next page comes from the same scan

Ask = Callable[..., Awaitable[Any]]
Servers = Callable[[], Awaitable[list[Ask]]]
Name = tuple[str, bool]  # and whether it is certain that a claim is there


class ResourceScan:
    """Scans the keys of one server or several, and keeps the last result for the pages that follow."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._walk: tuple[str, float, list[Name]] = ("", 0.0, [])

    async def names_after(self, servers: Servers, prefix: str, after: str) -> list[Name]:
        """Names with this prefix that come after `after`, in code point order, from all servers."""
        walked, when, names = self._walk
        if not after or walked != prefix or time.monotonic() - when > KEPT_S:
            found: dict[str, bool] = {}
            for ask in await servers():
                for name, sure in (await self._all(ask, prefix)).items():
                    # A name whose slot is moving may be found twice.
                    found[name] = sure or found.get(name, False)
            names = sorted(found.items())
            self._walk = (prefix, time.monotonic(), names)
        return [name for name in names if name[0] > after]

    async def _all(self, ask: Ask, prefix: str) -> dict[str, bool]:
        found: dict[str, bool] = {}
        wanted = literally(self._keys.holder(prefix))
        async for keys in _walk(ask, b"*" + wanted + b"*\x1f[hw]"):
            for key in keys:
                name = self._keys.resource(key)
                if name is not None and name.startswith(prefix):
                    found[name] = False
        async for keys in _walk(ask, wanted + b"*", b"TYPE", b"string"):
            names = [(key, self._keys.resource(key)) for key in keys]
            named = [(key, name) for key, name in names if name is not None]
            if not named:
                continue
            # PING comes first so that there are several replies, which come as a list; a single reply would
            # not.
            request = b"".join([command(b"GETRANGE", key, b"0", PEEK_BYTES) for key, _ in named])
            _, *values = await ask(command(b"PING") + request, 1 + len(named))
            for (_, name), value in zip(named, values, strict=True):
                if not isinstance(value, ErrorReply) and RECORD_START.match(value):
                    found[name] = True
        return found


class Cursors:
    """The cursors of one scan, which must come to an end."""

    def __init__(self) -> None:
        self._seen: set[bytes | str] = set()
        self._steps = 0

    def follow(self, cursor: bytes | str) -> None:
        """ValueError if the scan has been going on for too long, or in a circle."""
        self._seen.add(cursor)
        self._steps += 1
        # A server that shrinks its table goes back a little, so a cursor may come again; but not all the
        # time.
        if self._steps >= MAX_STEPS or self._steps - len(self._seen) > MAX_REPEATED_CURSORS:
            raise ValueError("SCAN comes to no end")


async def _walk(ask: Ask, pattern: bytes, *only: bytes) -> AsyncIterator[list[bytes]]:
    """The matching keys, step by step; a key may come twice. ValueError if the steps come to no end."""
    cursor, cursors = b"0", Cursors()
    while True:
        cursor, keys = await ask(command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", KEYS_PER_STEP, *only))
        if keys:
            yield keys
        if cursor == b"0":
            return
        cursors.follow(cursor)


def literally(text: bytes) -> bytes:
    """A pattern that matches exactly this text."""
    return re.sub(rb"([*?\[\]\\^-])", rb"\\\1", text)
