"""The requests that interlock sends: kazoo's own, and those that it does not have.

kazoo sends any object with a `type`, `serialize` and `deserialize`. A request that is a write counts for the
session's time (see `deadline_rule`), so each of them says whether it is one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from interlock.backends.zookeeper.library import exceptions, serialization, states

EPHEMERAL, SEQUENTIAL, CONTAINER = 1, 2, 4  # flags of a node that is made

_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")

Request = Any
"""An object that kazoo can send."""

Watcher = Callable[[Any], None]
"""Called with an event of kazoo, once."""


def create(path: str, data: bytes, acl: Sequence[Any], flags: int = 0) -> Request:
    """Make a node; the answer is its path and its Stat."""
    return serialization.Create2(path, data, acl, flags)


def create_in_multi(path: str, data: bytes, acl: Sequence[Any], flags: int = 0) -> Request:
    """Make a node as a part of a `multi`, which answers such a part with the path alone."""
    return serialization.Create(path, data, acl, flags)


def delete(path: str, version: int = -1) -> Request:
    return serialization.Delete(path, version)


def set_data(path: str, data: bytes, version: int = -1) -> Request:
    """Write a node's data; the answer is its new Stat."""
    return serialization.SetData(path, data, version)


def check(path: str, version: int) -> Request:
    """A part of a `multi`, which fails unless the node has this version."""
    return serialization.CheckVersion(path, version)


def multi(parts: Sequence[Request]) -> Request:
    """Writes that are applied together or not at all; the answer is a list, with exceptions in it if they
    were not.
    """
    return serialization.Transaction(list(parts))


def get_data(path: str, watcher: Watcher | None = None) -> Request:
    """Read a node. On a node that does not exist this leaves no watch behind, as `exists` would."""
    return serialization.GetData(path, watcher)


def exists(path: str, watcher: Watcher | None = None) -> Request:
    """The Stat of a node or None; a watcher is told when the node is made, too."""
    return serialization.Exists(path, watcher)


def get_children(path: str, watcher: Watcher | None = None) -> Request:
    return serialization.GetChildren(path, watcher)


def list_children(path: str) -> Request:
    """The names of the nodes below this one, and its own Stat."""
    return serialization.GetChildren2(path, None)


def sync(path: str) -> Request:
    """Have the server catch up with the leader before the reads that follow."""
    return serialization.Sync(path)


class CreateContainer:
    """Make a node that the server removes some time after its last child has gone; since ZooKeeper 3.5."""

    type = 19

    def __init__(self, path: str, acl: Sequence[Any]) -> None:
        self._as_create2 = serialization.Create2(path, b"", acl, CONTAINER)  # the same bytes

    def serialize(self) -> Any:
        return self._as_create2.serialize()

    @staticmethod
    def deserialize(data: bytes, offset: int) -> Any:
        return serialization.Create2.deserialize(data, offset)


class GetEphemerals:
    """The paths of this session's ephemeral nodes that begin with `prefix`; since ZooKeeper 3.6."""

    type = 103

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def serialize(self) -> bytes:
        text = self.prefix.encode()
        return _INT.pack(len(text)) + text

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[str]:
        return _strings(data, offset)[0]


class MultiRead:
    """Many reads in one request; since ZooKeeper 3.6.

    Each is answered with its result, or with an exception.
    """

    type = 22

    def __init__(self, reads: Sequence[Request]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        header = serialization.MultiHeader
        parts = [bytes(header(read.type, False, -1).serialize() + read.serialize()) for read in self.reads]
        return b"".join([*parts, bytes(header(-1, True, -1).serialize())])

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        answers: list[Any] = []
        while True:
            header, offset = serialization.MultiHeader.deserialize(data, offset)
            if header.done:
                return answers
            if header.type == serialization.GetData.type:
                content, offset = serialization.read_buffer(data, offset)
                answers.append((content, states.ZnodeStat._make(_STAT.unpack_from(data, offset))))
                offset += _STAT.size
            elif header.type == serialization.GetChildren.type:
                children, offset = _strings(data, offset)
                answers.append(children)
            else:
                answers.append(exceptions.EXCEPTIONS[_INT.unpack_from(data, offset)[0]]())
                offset += _INT.size


def _strings(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    found: list[str] = []
    for _ in range(count):
        text, offset = serialization.read_string(data, offset)
        found.append(text or "")
    return found, offset


def answers(request: Request, value: Any) -> bool:
    """Whether this can be the answer to a request.

    Of some answers that ZooKeeper would not give, kazoo makes another value.
    """
    match request.type:
        case serialization.Create.type:
            return isinstance(value, str)
        case serialization.Create2.type | CreateContainer.type:
            return _pair(value, str)
        case serialization.GetData.type:
            return _pair(value, bytes, type(None))
        case serialization.GetChildren.type | GetEphemerals.type:
            return _names(value)
        case serialization.GetChildren2.type:
            return _pair(value, list) and _names(value[0])
        case serialization.Transaction.type:
            return _size(value, list) == len(request.operations)
        case MultiRead.type:
            pairs: list[tuple[Request, Any]] = list(zip(request.reads, value, strict=False))
            return _size(value, list) == len(request.reads) and all(
                isinstance(one, Exception) or answers(read, one) for read, one in pairs
            )
        case _:
            return True


def _pair(value: Any, *kinds: type) -> bool:
    """Whether it is something of one of these kinds, and a Stat."""
    return _size(value, tuple) == 2 and isinstance(value[0], kinds) and isinstance(value[1], states.ZnodeStat)


def _size(value: Any, kind: type[Any]) -> int:
    """How many it has, if it is of this kind; otherwise -1."""
    return len(value) if isinstance(value, kind) else -1


def _names(value: Any) -> bool:
    return isinstance(value, list) and None not in value


WRITES = (
    serialization.Create2.type,
    serialization.Delete.type,
    serialization.SetData.type,
    serialization.Transaction.type,
    CreateContainer.type,
)
