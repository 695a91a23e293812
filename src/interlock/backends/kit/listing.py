"""How long a list of all claims of a session may be used again.

Thousands of leases are renewed in hundreds of requests, and the server tells in one list which of them stand.
If it takes long to get that list, getting it for each request would take so long that leases lapse meanwhile.
"""

from __future__ import annotations

MIN_BULK_RENEWALS = 50  # renewals in one request for which a list of all claims is worth its price
RECENT_S = 0.25  # seconds: 10,000 leases are renewed in 100 requests, and one list is enough
LISTING_TIMES = 4.0  # a list that took long to get is used for so many times as long as that took,
MAX_TTL_PART = 1 / 8  # but for no more than this part of the session's ttl


def recent(took: float, ttl: float) -> float:
    """Seconds for which a list that took so long is used again."""
    return max(RECENT_S, min(LISTING_TIMES * took, MAX_TTL_PART * ttl))
