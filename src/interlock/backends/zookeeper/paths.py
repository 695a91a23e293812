"""From a name, a claim or a register to its node, and back. Pure.

    /interlock/NAME/ID-PERMITS-CAPACITY__lock__SEQUENCE    a claim: ephemeral, sequential
    /interlock/NAME/ID-PERMITS__shrunk                     the permits that it has left, once some are back
    /interlock/NAME/lingering-TOKEN-...__lock__SEQUENCE    keeps its place, persistent: a `min_hold`
    /interlock/.registers/NAME                             a register
    /interlock/.gone/claim-ID, .../register-NAME           evicted or deleted
    /interlock/.gone/linger-TOKEN                          lingers, and is to be removed soon
    /interlock/.sessions/SESSION                           written to: a reply shows that the leader knows it

All of it is below the chroot of the URL. The name of a claim's node carries everything that decides who is
admitted, so nobody has to read the data of a node for that. It ends as the nodes of kazoo's own `Lock` do, so
the two exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from urllib.parse import unquote

from interlock._support.record import record
from interlock.model import EVERYTHING, LINGERING

ROOT = "interlock"

MAX_SEQUENCE = 2**31 - 2**20
"""The sequence number from which on a claim does not count.

The servers stay at 2^31 - 1, so claims would have no order there.
"""

REFUSED = re.compile("[%/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Characters that ZooKeeper refuses in a path (it looks at UTF-16, so everything above U+FFFF too), and
our own two.
"""

CLAIM = re.compile(r"(?P<id>.+)-(?P<permits>\d+)-(?P<capacity>\d+)__lock__(?P<sequence>-?\d{10})")
FOREIGN = re.compile(r".*__r?lock__(?P<sequence>-?\d{10})")
SHRUNK = re.compile(r"(?P<id>.+)-(?P<permits>\d+)__shrunk")


def escaped(name: str) -> str:
    """A name as one element of a path. No two names have the same one, and a usual name stays as it is."""
    safe = REFUSED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe  # "." and "..", and our own nodes, begin so


def unescaped(element: str) -> str | None:
    """The name that has this element of a path; None for a node that is no resource or register of ours."""
    if element.startswith("."):
        return None
    try:
        name = unquote(element, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if escaped(name) == element else None


@record
class ClaimNode:
    """One claim in a queue, as the name of its node tells it."""

    sequence: int
    node: str  # the last element of its path
    id: str  # of a foreign node: its name
    permits: int
    capacity: int  # 0 if it has no say: a foreign node
    markers: tuple[str, ...] = ()  # the nodes that say how far it has shrunk

    @property
    def foreign(self) -> bool:
        return self.capacity == 0

    @property
    def counts(self) -> bool:
        """Whether its number tells where it stands. Near the end of the numbers, its client withdraws it."""
        return 0 <= self.sequence < MAX_SEQUENCE

    @property
    def lingering(self) -> bool:
        """Whether its holder has released it, and it stays for the rest of a `min_hold`."""
        return self.id.startswith(LINGERING)

    def permits_of(self, capacity: int) -> int:
        """The permits that it takes: a foreign lock takes everything there is."""
        return capacity if self.foreign else self.permits


_SEQUENCE = attrgetter("sequence")


def claim_prefix(id: str, permits: int, capacity: int) -> str:
    """The name that the server completes with a sequence number."""
    return f"{escaped(id)}-{permits}-{capacity}__lock__"


def lingering_node(node: str, token: int, permits: int, capacity: int) -> str:
    """The node that takes the place of a claim's node, under the same sequence number, once its holder has
    released it.
    """
    return claim_prefix(f"{LINGERING}{token}", permits, capacity) + node.rpartition("__lock__")[2]


def shrunk_node(id: str, permits: int) -> str:
    return f"{escaped(id)}-{permits}__shrunk"


def claim_nodes(children: Iterable[str]) -> list[ClaimNode]:
    """The queue of a resource in its order, from the names of the nodes there. Other nodes do not count."""
    found: list[ClaimNode] = []
    shrunk: dict[str, list[tuple[int, str]]] = {}
    for child in children:
        read = _read(child)
        if isinstance(read, ClaimNode):
            found.append(read)
        elif read is not None:
            id, permits = read
            shrunk.setdefault(id, []).append((permits, child))
    if shrunk:
        found = [
            _shrunk(claim_node, shrunk[claim_node.id]) if claim_node.id in shrunk else claim_node
            for claim_node in found
        ]
    return sorted(found, key=_SEQUENCE)


def counts(node: str) -> bool:
    """Whether the claim of this node counts: see `Place.counts`."""
    read = _read(node)
    return isinstance(read, ClaimNode) and read.counts


@lru_cache(maxsize=2**14)  # a client that waits in a long queue lists the same nodes again and again
def _read(node: str) -> ClaimNode | tuple[str, int] | None:
    """The meaning of a node's name: a claim, the permits that a claim has left, or nothing to us."""
    if claim := CLAIM.fullmatch(node):
        id = unquote(claim["id"])
        return ClaimNode(int(claim["sequence"]), node, id, int(claim["permits"]), int(claim["capacity"]))
    if other := FOREIGN.fullmatch(node):
        return ClaimNode(int(other["sequence"]), node, node, EVERYTHING, 0)
    if marker := SHRUNK.fullmatch(node):
        return unquote(marker["id"]), int(marker["permits"])
    return None


def _shrunk(claim_node: ClaimNode, markers: list[tuple[int, str]]) -> ClaimNode:
    permits = min(claim_node.permits, *(permits for permits, _ in markers))
    names = tuple(name for _, name in markers)
    return ClaimNode(claim_node.sequence, claim_node.node, claim_node.id, permits, claim_node.capacity, names)


class Paths:
    """The paths below one chroot."""

    def __init__(self, chroot: str) -> None:
        self.parents = [part for part in chroot.split("/") if part]  # of the root: made if they are missing
        base = "".join(f"/{part}" for part in self.parents)
        self.root = f"{base}/{ROOT}"
        self.registers = f"{self.root}/.registers"
        self.gone = f"{self.root}/.gone"
        self.sessions = f"{self.root}/.sessions"

    def folder(self, resource: str) -> str:
        return f"{self.root}/{escaped(resource)}"

    def register(self, name: str) -> str:
        return f"{self.registers}/{escaped(name)}"

    def evicted(self, id: str) -> str:
        return f"{self.gone}/claim-{escaped(id)}"

    def lingers(self, token: int) -> str:
        return f"{self.gone}/linger-{token}"

    def deleted(self, name: str) -> str:
        return f"{self.gone}/register-{escaped(name)}"

    def session(self, number: int) -> str:
        return f"{self.sessions}/{number & 0xFFFFFFFFFFFFFFFF:x}"
