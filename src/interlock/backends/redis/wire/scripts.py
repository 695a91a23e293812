"""The Lua scripts, read from the files in this folder, and the beginnings of the requests that run them."""

from __future__ import annotations

import hashlib
import re

from interlock._support.package_text import text_beside
from interlock._support.record import record
from interlock.backends.redis.wire.resp import bulk


@record
class Call:
    """How a request for a script begins, for a given number of keys and arguments."""

    by_hash: bytes  # EVALSHA, for a server that knows the script
    with_source: bytes  # EVAL with the source, for a server that does not


_SCRIPTS: dict[str, Script] = {}  # by hash


def failed_line(text: str) -> str:
    """The line of the script that an error reply blames, "" if it blames none of ours.

    Redis 7 says "script: HASH, on @user_script:LINE.", and Redis 6 "(call to f_HASH): @user_script:LINE:
    ...".
    """
    found = re.search(r"(?:script: |call to f_)([0-9a-f]{40})\b.*?@user_script: ?(\d+)", text)
    if found is None or found[1] not in _SCRIPTS:
        return ""
    lines = _SCRIPTS[found[1]].source.decode().splitlines()
    return lines[int(found[2]) - 1] if int(found[2]) <= len(lines) else ""


def failed_commands(text: str) -> list[str]:
    """The commands of a script of which one failed: those of the line, or the one that the script names
    itself.
    """
    return re.findall(r"redis\.p?call\('(\w+)'", failed_line(text)) or re.findall(r" \(([A-Z]+)\)", text)


class Script:
    """One script, which requests name by its hash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = _source(name).encode()
        self.sha = hashlib.sha1(self.source).hexdigest().encode()
        _SCRIPTS[self.sha.decode()] = self
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

    What follows a line `-- apart` becomes a function of its own. Lua clears a slot of its stack for each
    variable of a function that is called, so a fast path that shares a function with the rest of its script
    pays for all of them.
    """
    text = text_beside(__spec__, name + ".lua")
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
_WRITE = Script("write")
WRITE, WRITE_CONFIRMED = _WRITE.call(2, 4), _WRITE.call(2, 5)
STRETCH = Script("stretch").call(1, 3)
RENEW = Script("renew")  # any number of claims
