"""The messages of etcd's API that interlock sends and reads, by the field numbers of its protocol (v3).

Requests are functions that return bytes; answers are small classes made from bytes. A `Method` is the path of
a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from interlock.backends.etcd.wire.protobuf import (
    Fields,
    MalformedMessage,
    all_of,
    decode,
    integer,
    message,
    text,
)

Method: TypeAlias = bytes

RANGE: Method = b"/etcdserverpb.KV/Range"
TXN: Method = b"/etcdserverpb.KV/Txn"
WATCH: Method = b"/etcdserverpb.Watch/Watch"
GRANT: Method = b"/etcdserverpb.Lease/LeaseGrant"
REVOKE: Method = b"/etcdserverpb.Lease/LeaseRevoke"
KEEP_ALIVE: Method = b"/etcdserverpb.Lease/LeaseKeepAlive"
TIME_TO_LIVE: Method = b"/etcdserverpb.Lease/LeaseTimeToLive"
AUTHENTICATE: Method = b"/etcdserverpb.Auth/Authenticate"
STATUS: Method = b"/etcdserverpb.Maintenance/Status"
ALARM: Method = b"/etcdserverpb.Maintenance/Alarm"
MEMBERS: Method = b"/etcdserverpb.Cluster/MemberList"

UPWARDS, DOWNWARDS = 1, 2  # the order of a sorted range
BY_CREATION = 2  # what it is sorted by
MAX_TOKEN_BYTES = 1 << 16  # bytes of the token of a login, which is sent with every call
MAX_OPERATIONS = 128  # of each branch of a Txn, unless the operator allows more


# ---- keys: reading, writing, comparing --------------------------------------------------


def get(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    order: int = 0,
    serializable: bool = False,
    keys_only: bool = False,
    max_create: int = 0,
) -> bytes:
    """A range request; with an `order`, sorted by the revision at which the keys were created."""
    return message(
        (1, key),
        (2, end),
        (3, limit),
        (5, order),
        (6, BY_CREATION if order else 0),
        (7, int(serializable)),
        (8, int(keys_only)),
        (13, max_create),
    )


def put(key: bytes, value: bytes, lease: int = 0, *, keep_lease: bool = False) -> bytes:
    """A put; with `keep_lease` the key must exist, and stays under the lease that it has."""
    return message((1, key), (2, value), (3, lease), (6, int(keep_lease)))


def get_op(request: bytes) -> bytes:
    """A range as one operation of a Txn."""
    return message((1, request))


def put_op(request: bytes) -> bytes:
    """A put as one operation of a Txn."""
    return message((2, request))


def delete_op(key: bytes) -> bytes:
    """The deletion of one key as one operation of a Txn."""
    return message((3, message((1, key))))


def txn_op(request: bytes) -> bytes:
    """A Txn within a Txn."""
    return message((4, request))


_CREATE, _MOD, _VALUE = 1, 2, 3  # targets of a comparison
_LESS = 2  # its result; EQUAL is 0


def compare_create_revision(key: bytes, revision: int) -> bytes:
    """Compares: this key was created at this revision; 0: it does not exist."""
    return message((2, _CREATE), (3, key), (5, revision), always=(5,))


@lru_cache(maxsize=1024)
def nothing_in(key: bytes, end: bytes) -> bytes:
    """Compares: no key of the range exists."""
    return message((2, _CREATE), (3, key), (5, 0), (64, end), always=(5,))


def none_since(key: bytes, end: bytes, revision: int) -> bytes:
    """Compares: no key of the range was created after this revision."""
    return message((1, _LESS), (2, _CREATE), (3, key), (5, revision + 1), (64, end))


@lru_cache(maxsize=1024)
def compare_mod_revision(key: bytes, revision: int) -> bytes:
    """Compares: this key was last written at this revision; 0: it does not exist."""
    return message((2, _MOD), (3, key), (6, revision), always=(6,))


def below(key: bytes, value: bytes) -> bytes:
    """Compares: the value of this key exists and is less than this one, byte by byte."""
    return message((1, _LESS), (2, _VALUE), (3, key), (7, value))


def txn(compare: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    return message(*[(1, c) for c in compare], *[(2, s) for s in success], *[(3, f) for f in failure])


def compared(comparison: bytes) -> bytes:
    """One comparison as a part of a Txn.

    A message may be appended to another: then it has the fields of both.
    """
    return message((1, comparison))


class Header:
    """The header of every answer, about its member."""

    __slots__ = ("cluster", "member", "revision", "term")

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self.cluster = integer(fields, 1)
        self.member = integer(fields, 2)
        self.revision = integer(fields, 3)
        self.term = integer(fields, 4)


class KeyValue:
    __slots__ = ("created", "key", "lease", "modified", "value")

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self.key = text(fields, 1)
        self.created = integer(fields, 2)
        self.modified = integer(fields, 3)
        self.value = text(fields, 5)
        self.lease = integer(fields, 6)


class RangeAnswer:
    """Keys and values, and how many keys the whole range has."""

    __slots__ = ("_fields", "count", "kvs", "more")

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.kvs = [KeyValue(data) for data in all_of(fields, 2)]
        if not all(kv.key and kv.created > 0 for kv in self.kvs):
            raise MalformedMessage("a key has no name or no revision")
        self.more = bool(integer(fields, 3))
        self.count = integer(fields, 4)

    @classmethod
    def of(cls, data: bytes) -> RangeAnswer:
        return cls(decode(data))

    @property
    def header(self) -> Header:
        return Header(text(self._fields, 1))


class TxnAnswer:
    """The branch that ran, its revision, and the answers of its operations."""

    __slots__ = ("_fields", "_header", "succeeded")

    def __init__(self, data: bytes, header: bytes = b"") -> None:
        self._fields = decode(data)
        self._header = header or text(self._fields, 1)
        self.succeeded = bool(integer(self._fields, 2))

    @property
    def header(self) -> Header:
        return Header(self._header)

    @property
    def revision(self) -> int:
        """The revision of the header alone."""
        return integer(decode(self._header), 3)

    def _response(self, index: int) -> Fields:
        found = all_of(self._fields, 3)
        if index >= len(found):
            raise MalformedMessage("an operation of a Txn has no answer")
        return decode(found[index])

    def nested(self, index: int) -> TxnAnswer:
        """The answer of the Txn at this place of the branch. It has no header of its own."""
        return TxnAnswer(text(self._response(index), 4), self._header)

    def ranged(self, index: int) -> RangeAnswer:
        """The answer of the range at this place of the branch."""
        return RangeAnswer(decode(text(self._response(index), 1)))

    def deleted(self, index: int) -> int:
        """How many keys the deletion at this place removed."""
        return integer(decode(text(self._response(index), 3)), 2)


# ---- leases -----------------------------------------------------------------------------


def grant(ttl: int, lease: int) -> bytes:
    return message((1, ttl), (2, lease))


def of_lease(lease: int, *, keys: bool = False) -> bytes:
    """The request of LeaseRevoke, LeaseKeepAlive and LeaseTimeToLive."""
    return message((1, lease), (2, int(keys)))


class LeaseAnswer:
    """The answer of a grant, of a keep-alive or of a question for the time to live."""

    __slots__ = ("header", "keys", "lease", "ttl")

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self.header = Header(text(fields, 1))
        self.lease = integer(fields, 2)
        self.ttl = integer(
            fields, 3
        )  # of a lease that does not exist: 0 for a keep-alive, -1 for a time to live
        self.keys = all_of(fields, 5)

    @classmethod
    def of_grant(cls, data: bytes) -> LeaseAnswer:
        """The answer of a grant, which certainly has a lease with some time in it."""
        found = cls(data)
        if not found.lease or found.ttl < 1:
            raise MalformedMessage("a lease has no id or no time to live")
        return found


# ---- watches ----------------------------------------------------------------------------


def watch(number: int, key: bytes, end: bytes = b"", *, only_deletions: bool = False) -> bytes:
    """Opens a watch "from now" under a number of ours; `only_deletions` filters puts out.

    The filter NOPUT has the number 0, which proto3 leaves out by itself: it is a packed field, so its bytes
    are written here.
    """
    filters = b"\0" if only_deletions else b""
    return message((1, message((1, key), (2, end), (5, filters), (7, number))))


def unwatch(number: int) -> bytes:
    return message((2, message((1, number))))


class WatchAnswer:
    """A message of a watch; `changed` is the revision of the last change that it tells of, and 0 if there is
    none.
    """

    __slots__ = ("cancelled", "changed", "created", "number")

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self.number = integer(fields, 2)
        self.created = bool(integer(fields, 3))
        self.cancelled = bool(integer(fields, 4))
        events = all_of(fields, 11)
        self.changed = KeyValue(text(decode(events[-1]), 2)).modified if events else 0


# ---- the rest ---------------------------------------------------------------------------


def authenticate(user: str, password: str) -> bytes:
    return message((1, user.encode()), (2, password.encode()))


def token_of(data: bytes) -> bytes:
    token = text(decode(data), 2)
    if not 0 < len(token) <= MAX_TOKEN_BYTES:
        raise MalformedMessage(f"the token of a login has {len(token)} bytes")
    return token


def alarms_of(data: bytes) -> list[tuple[int, int]]:
    """The member and the kind of each alarm: 1 no space, 2 a damaged database."""
    entries = [decode(entry) for entry in all_of(decode(data), 2)]
    return [(integer(entry, 1), integer(entry, 2)) for entry in entries]


def members_of(data: bytes) -> list[tuple[str, bool]]:
    """The name of each member, and whether it only learns and has no vote."""
    entries = [decode(entry) for entry in all_of(decode(data), 2)]
    return [(text(entry, 2).decode("utf-8", "replace"), bool(integer(entry, 5))) for entry in entries]


class StatusAnswer:
    """The member that answered, its cluster, the leader that it knows (0: none), the term, and its database's
    size.
    """

    __slots__ = ("cluster", "leader", "member", "size", "term", "version")
    UNKNOWN = -1  # a leader that the user has no right to ask for

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        header = Header(text(fields, 1))
        self.cluster, self.member, self.term = header.cluster, header.member, header.term
        self.version = text(fields, 2).decode("ascii", "replace")
        self.leader = integer(fields, 4)
        self.size = integer(fields, 3)  # bytes

    @classmethod
    def from_header(cls, header: Header) -> StatusAnswer:
        """As much of it as the answer of a member that knows its leader tells."""
        found = cls(b"")
        found.cluster, found.member = header.cluster, header.member
        found.term, found.leader = header.term, cls.UNKNOWN
        return found
