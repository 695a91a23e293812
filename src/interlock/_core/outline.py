"""The parts of a queue in which two readings of it can differ: for the core, for stores that watch, and for
the command line.
"""

from __future__ import annotations

from interlock.model import Queue


def outline(queue: Queue | None) -> list[tuple[str, int, bool, str]]:
    """Who stands where, and under which note; not how long they will live."""
    return [(s.id, s.permits, s.admitted, s.note) for s in queue.standings] if queue else []
