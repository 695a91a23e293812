"""The Lua scripts, read from the files in this folder, and the beginnings of the requests that run them."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from interlock.backends.redis.wire.resp import bulk
from interlock.record import record


@record
class Call:
    """How a request for a script begins, for a given number of keys and arguments."""

    by_hash: bytes  # EVALSHA, for a server that knows the script
    with_source: bytes  # EVAL with the source, for a server that does not


class Script:
    """One script, which requests name by its hash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = _source(name).encode()
        self.sha = hashlib.sha1(self.source).hexdigest().encode()
        self._calls: dict[tuple[int, int], Call] = {}

    def call(self, keys: int, args: int) -> Call:
        made = self._calls.get((keys, args))
        if made is None:
            count, numkeys = b"*%d\r\n" % (3 + keys + args), bulk(b"%d" % keys)
            made = self._calls[keys, args] = Call(
                count + bulk(b"EVALSHA") + bulk(self.sha) + numkeys,
                count + bulk(b"EVAL") + bulk(self.source) + numkeys,
            )
        return made


def _source(name: str) -> str:
    """The file with its includes and without comments, since the server keeps a copy in memory.

    What follows a line `-- apart` becomes a function of its own. Lua clears a slot of its stack for each variable of a
    function that is called, so a fast path that shares a function with the rest of its script pays for all of them.
    """
    loader: Any = __spec__.loader  # not open(): the package may have been imported from a zip file
    path = os.path.normpath(os.path.join(os.path.dirname(__file__), name + ".lua"))  # a zip file has no ".."
    text = loader.get_data(path).decode("utf-8")
    lines: list[str] = []
    apart = False
    for line in text.splitlines():
        if line.startswith("-- include "):
            lines.append(_source(line.removeprefix("-- include ").removesuffix(".lua")))
        elif line == "-- apart":
            lines.append("local function apart()")
            apart = True
        elif line.strip() and not line.lstrip().startswith("--"):
            lines.append(line)
    if apart:
        lines.append("end return apart()")
    return "\n".join(lines)


_CLAIM, _RELEASE = Script("claim"), Script("release")
CLAIM, CLAIM_PLACE = _CLAIM.call(5, 4), _CLAIM.call(5, 5)
RELEASE, RELEASE_LINGER, RELEASE_PLACE, RELEASE_UNANSWERED = (_RELEASE.call(4, args) for args in (2, 3, 4, 5))
INSPECT = Script("inspect").call(4, 2)
EVICT = Script("evict").call(4, 8)
STANDS = Script("stands").call(4, 1)
WRITE = Script("write").call(2, 4)
STRETCH = Script("stretch").call(1, 2)
RENEW = Script("renew")  # any number of claims
