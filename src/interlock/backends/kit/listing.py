"""How long a list of all claims of a session may be used again.

Thousands of leases are renewed in hundreds of requests, and the server tells in one list which of them stand. If it takes long to get that list,
getting it for each request would take so long that leases lapse meanwhile.
"""

from __future__ import annotations

BULK = 50  # renewals of one request from which on a list is used again,
RECENT = 0.25  # if it is no older than this, seconds: 10,000 leases are renewed in 100 requests, and one list is enough;
PART = 4.0  # or, if it took longer to get, so many times as long as that took,
LONGEST = (
    1 / 8
)  # but no longer than this part of the session's ttl: a list of 60,000 takes seconds on a busy machine


def recent(took: float, ttl: float) -> float:
    """Seconds for which a list that took so long is used again."""
    return max(RECENT, min(PART * took, LONGEST * ttl))
