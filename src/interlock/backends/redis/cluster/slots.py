"""The slot map of a Cluster as its nodes report it, and the slot that a request is for. Data only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from interlock._support.record import record
from interlock.backends.redis.errors import unexpected_answer
from interlock.backends.redis.wire.keys import SLOTS, slot
from interlock.backends.redis.wire.resp import MALFORMED

HostPort = tuple[str, int]
Remap = Callable[[HostPort], HostPort]

HEAD = re.compile(
    rb"\*\d+\r\n\$\d+\r\n(?:EVALSHA\r\n\$40\r\n.{40}\r\n\$\d+\r\n\d+\r\n|GET\r\n)\$(\d+)\r\n", re.DOTALL
)
"""How most requests begin, up to the first key."""


@record
class ShardMaster:
    """A master: a node that has slots."""

    id: str
    node: HostPort
    replicas: int  # all known ones, dead ones included


class SlotMap:
    """The master of every slot, as one node knew it."""

    def __init__(
        self, ranges: list[tuple[int, int, ShardMaster]], epoch: int, others: Iterable[HostPort] = ()
    ) -> None:
        self.epoch = epoch  # the latest of its nodes; it rises with every failover and when slots move
        self.owners: list[ShardMaster | None] = [None] * SLOTS
        for first, last, master in ranges:  # by slices, not slot by slot: callers wait for this
            self.owners[first : last + 1] = [master] * (last + 1 - first)
        found = {master.id: master for _, _, master in ranges}
        self.masters = list(found.values())
        self.ids = frozenset(found)
        self.nodes = [master.node for master in self.masters]
        # Replicas can be asked for the map, too.
        self.nodes += [node for node in others if node not in self.nodes]

    def node(self, number: int) -> HostPort | None:
        owner = self.owners[number]
        return None if owner is None else owner.node


def read_map(slots: Any, nodes: bytes, asked: HostPort, remap: Remap | None = None) -> SlotMap:
    """The map from the replies to `CLUSTER SLOTS` and, for epochs and replicas, `CLUSTER NODES`.

    `asked` is the node that replied, since a node may leave out its own host.
    """
    epoch, replicas = _read_nodes(nodes)
    ranges: list[tuple[int, int, ShardMaster]] = []
    others: list[HostPort] = []
    for first, last, main, *rest in slots:
        if not 0 <= first <= last < SLOTS:
            raise ValueError(f"slots {first} to {last}")
        near = [_node(entry, asked, remap) for entry in (main, *rest)]
        id = main[2].decode()
        ranges.append((first, last, ShardMaster(id, near[0], max(len(rest), replicas.get(id, 0)))))
        others += near[1:]
    return SlotMap(ranges, epoch, others)


def _node(entry: list[Any], asked: HostPort, remap: Remap | None) -> HostPort:
    host, port = (entry[0] or b"").decode(), checked_port(entry[1])
    node = (asked[0] if host in ("", "?") else host, port)
    return node if remap is None else remap(node)


def checked_port(port: int | str | bytes) -> int:
    number = int(port)
    if not 0 < number < 65536:
        raise ValueError(f"port {number}")
    return number


def _read_nodes(nodes: bytes) -> tuple[int, dict[str, int]]:
    """The latest epoch, and how many replicas each master has."""
    epoch, replicas = 0, dict[str, int]()
    for line in nodes.decode(errors="replace").splitlines():
        words = line.split(" ")
        if len(words) < 8:
            continue
        flags, master = words[2].split(","), words[3]
        epoch = max(epoch, int(words[6]))
        if "slave" in flags and "handshake" not in flags:
            replicas[master] = replicas.get(master, 0) + 1
    return epoch, replicas


def slot_of(request: bytes) -> int:
    """The slot of the first key that a request names."""
    if usual := HEAD.match(request):
        return slot(request[usual.end() : usual.end() + int(usual[1])])
    at = request.index(b"\r\n") + 2
    word, at = _word(request, at)
    if word.startswith(b"EVAL"):
        at = _word(request, _word(request, at)[1])[1]  # after the script and the number of keys
    return slot(_word(request, at)[0])


def _word(request: bytes, at: int) -> tuple[bytes, int]:
    end = request.index(b"\r\n", at)
    start = end + 2
    stop = start + int(request[at + 1 : end])
    return request[start:stop], stop + 2


def redirected_to(words: str, asked: HostPort, remap: Remap | None = None) -> HostPort:
    """The node that a redirection such as `MOVED 3999 host:port` names.

    Without a host it is the host that sent it.
    """
    try:
        host, _, port = words.split(" ")[2].rpartition(":")
        node = (host or asked[0], checked_port(port))
    except MALFORMED as error:
        raise unexpected_answer(f"Redis at {asked[0]}:{asked[1]}", error) from error
    return node if remap is None else remap(node)
