"""The present holder's name on a claim that was passed on within its client, for everybody who reads the
queue.

The store knows the claim by its first holder. An heir that holds it for longer than a moment writes its token
and its `who` into the claim's note, with a renewal; code that shows a queue reads them there. Only plain
locks are passed on, and these have no note of their own.
"""

from __future__ import annotations

from interlock._support.record import replaced
from interlock.model import Claim, Queue, Standing
from interlock.who import ELECTION, Who

MARK = "\x1f"  # no note and no candidate's value begins with it
MAX_TOKEN_DIGITS = 19


def signature(token: int, who: str) -> str:
    return f"{MARK}{token}{MARK}{who}"


def is_signable(claim: Claim) -> bool:
    """Whether the claim's note may hold a signature: an election's is the value that its leader proclaims."""
    return claim.capacity == 1 and not claim.note and Who.parse(claim.who).kind != ELECTION


def as_present_holder(standing: Standing) -> Standing:
    """The standing as its present holder's; as it is if its note is no signature, whoever wrote that."""
    token, found, who = standing.note[1:].partition(MARK)
    is_token = token.isascii() and token.isdigit() and len(token) <= MAX_TOKEN_DIGITS
    if not standing.note.startswith(MARK) or not found or not is_token:
        return standing
    return replaced(standing, token=int(token), who=who, note="")


def as_present_holders(queue: Queue) -> Queue:
    if not any(standing.note.startswith(MARK) for standing in queue.standings):
        return queue
    return replaced(queue, standings=tuple(as_present_holder(standing) for standing in queue.standings))
