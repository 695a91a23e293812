"""The names of the keys.

    interlock/<name>/<word>           a claim; its place in the queue is the revision at which it was created.
                                      The word is its client's, with a number if this client has several
                                      claims there; the claim's id stands in the value
    interlock/<name>/~r-<word>        the same for a reader: a claim that waits for writers alone need not
                                      read all readers
    interlock-gone/<claim id>         a claim that must not come back: evicted, or released
    interlock-gone/by-<call>-<n>      an eviction was done, for a caller that has not got the answer
    interlock-register/<name>         a register
    interlock-token-floor             a number that is added to every token; absent unless an operator set it
    interlock-session/<lease>         stands as long as the lease of a session, which is written in hex
    interlock-never                   nobody writes it; a Txn that would delete it confirms who leads

`interlock/` is the prefix, which the URL may choose. In a name, `%` and `/` are written `%25` and `%2F`:
otherwise the keys below `a/` would contain those of a resource `a/b`.
"""

from __future__ import annotations

from functools import lru_cache

DEFAULT_PREFIX = "interlock/"
READER = b"~r-"


@lru_cache(maxsize=1024)
def escaped(name: str) -> bytes:
    return name.replace("%", "%25").replace("/", "%2F").encode()


def unescaped(name: bytes) -> str | None:
    """The resource whose keys begin like this; None if they are no resource's."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    found = text.replace("%2F", "/").replace("%25", "%")
    return found if escaped(found) == name else None


class Keys:
    """The keys under one prefix."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        base = prefix.rstrip("/").encode()
        self.root = base + b"/"
        self.root_end = base + b"0"  # the byte after "/"
        self._gone = base + b"-gone/"
        self._register = base + b"-register/"
        self.floor = base + b"-token-floor"
        self._session = base + b"-session/"
        self.never = base + b"-never"

    def folder(self, resource: str) -> tuple[bytes, bytes]:
        """The range of all claims on a resource: its first key, and the first key behind it."""
        start = self.root + escaped(resource)
        return start + b"/", start + b"0"

    def readers(self, resource: str) -> tuple[bytes, bytes]:
        """The part of a folder in which nobody but readers stand.

        Those of earlier versions stand in the rest of it.
        """
        start = self.root + escaped(resource) + b"/" + READER[:-1]
        return start + READER[-1:], start + bytes((READER[-1] + 1,))

    def claim(self, resource: str, word: str) -> bytes:
        return self.root + escaped(resource) + b"/" + word.encode()

    def gone(self, id: str) -> bytes:
        return self._gone + id.encode()

    def eviction(self, call: str) -> bytes:
        return self._gone + b"by-" + call.encode()

    def session(self, lease: int) -> bytes:
        return self._session + b"%x" % lease

    def register(self, name: str) -> bytes:
        return self._register + escaped(name)

    def resource_of(self, key: bytes) -> tuple[str | None, bytes]:
        """The resource of a claim's key (None if it is no resource's), and the first key behind all of its
        claims.
        """
        name = key[len(self.root) :].split(b"/", 1)[0]
        return unescaped(name), self.root + name + b"0"
