"""The present holder's name on a claim that was passed on within its client, for everybody who reads the
queue.

The store knows the claim by its first holder. An heir that holds it for longer than a moment writes its token
and its `who` into the claim's note, with a renewal; code that shows a queue reads them there. Only plain
locks are passed on, and these have no note of their own.
"""

from __future__ import annotations

from interlock._support.record import replaced
from interlock.model import Queue, Standing

MARK = "\x1f"  # no user's note has a control character


def signature(token: int, who: str) -> str:
    return f"{MARK}{token}{MARK}{who}"


def as_present_holder(standing: Standing) -> Standing:
    """The standing as its present holder's."""
    if not standing.note.startswith(MARK):
        return standing
    token, who = standing.note[1:].split(MARK, 1)
    return replaced(standing, token=int(token), who=who, note="")


def as_present_holders(queue: Queue) -> Queue:
    if not any(standing.note.startswith(MARK) for standing in queue.standings):
        return queue
    return replaced(queue, standings=tuple(as_present_holder(standing) for standing in queue.standings))
