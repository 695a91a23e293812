"""Moves the counter of a folder, by editing the snapshot of a server that is stopped: nobody waits for two thousand million claims.

A record of a snapshot is: the path, the data, the ACL (a long), four longs of times and transactions, the version, and the folder's
`cversion`, which is the next sequence number. Paths and data have their length before them. The last 13 bytes are an Adler-32 of all before it, as a long, and
the path "/". Start the server without digests: they would be compared with the snapshot (`NO_DIGESTS`).
"""

from __future__ import annotations

import struct
from glob import glob
from pathlib import Path
from zlib import adler32

from interlock.testing.servers.zookeeper import Ensemble, Node

NO_DIGESTS = "-Dzookeeper.digest.enabled=false"
SEAL = 13


def move_counter(ensemble: Ensemble, path: str, number: int) -> None:
    """Have the only server of an ensemble give this sequence number to the next node at `path`, which exists."""
    (node,) = ensemble.nodes
    for _ in range(2):  # a server writes a snapshot when it starts
        node.kill()
        node.start()
        ensemble.ready()
    node.kill()
    edit(newest_snapshot(node), path, number)
    node.start()
    ensemble.ready()


def newest_snapshot(node: Node) -> Path:
    found = [Path(name) for name in glob(f"{node.folder}/version-2/snapshot.*")]
    return max(found, key=lambda name: int(name.suffix[1:], 16))


def edit(snapshot: Path, path: str, number: int) -> None:
    content = bytearray(snapshot.read_bytes())
    name = path.encode()
    at = content.index(struct.pack("!i", len(name)) + name) + 4 + len(name)
    (length,) = struct.unpack_from("!i", content, at)
    at += 4 + max(0, length) + 8 + 32 + 4
    struct.pack_into("!i", content, at, number)
    assert content[-5:] == b"\x00\x00\x00\x01/"
    struct.pack_into("!q", content, len(content) - SEAL, adler32(bytes(content[:-SEAL])))
    snapshot.write_bytes(content)
