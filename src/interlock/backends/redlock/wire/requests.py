"""What is asked of the nodes, and the seam between the algorithm and the ways to ask them.

Requests are records; only the panels of real servers know bytes. A reply is a list that begins with the node's clock
in microseconds; the heads of the scripts say what follows. The clock alone is a plain yes: a vote was accepted, a
release met its claim. `testing.redlock_node` is the same in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from interlock.errors import InterlockError
from interlock.model import Claim
from interlock.record import record

TOO_LOW, BUSY, EVICTED, MISMATCH, NO_VOTE = 2, 0, -1, -2, -9
"""What a vote that was not accepted answers, after the clock. BUSY: how many are ahead, ms until what is in the way lapses, and
the oldest holder, as `Panel.standing` reads it."""

RENEWED, GONE, STRAY = 1, 0, 2
"""What a renewal answers for one claim; an operator's words mean that it was evicted."""


@record
class Vote:
    """Enter the claim, and accept the ballot as its number. -> us, or [us, TOO_LOW...NO_VOTE, ...]"""

    claim: Claim
    ballot: int
    fill: bool = False  # a majority holds it already under this number: only enter it here, too


@record
class RenewalItem:
    """One claim to renew, with the token its holder has (0: whatever it stands with)."""

    resource: str
    id: str
    ttl: float
    note: str | None
    permits: int | None
    token: int


@record
class Renew:
    """Push the lapses of many claims away. -> [us, 1, answer, ...] or [us, NO_VOTE, whether it is certain]"""

    items: tuple[RenewalItem, ...]


@record
class Release:
    """Remove a claim. -> us, or [us, 0] if it did not stand; `upto`: not if a later ballot than this entered it (0: any)."""

    resource: str
    id: str
    linger: float = 0.0
    upto: int = 0


@record
class Inspect:
    """-> [us, 1 or NO_VOTE, capacity, (Standing, ...)]; with a limit only so many of them, those with the lowest tokens."""

    resource: str
    limit: int | None = None


@record
class Evict:
    """-> [us, 1 or NO_VOTE, (Standing, ...)]; an id of None means every holder.

    A node answers `ForeignKey` if another program's key stands there that it may not remove.
    """

    resource: str
    id: str | None
    reason: str
    foreign: bool = False  # also a string that another program wrote
    no_expiry: bool = False  # and also if it has no expiry


@record
class Scan:
    """One step over the names on a node, beginning with the cursor ''. -> [us, cursor, (name, ...)]; '' at the end."""

    prefix: str
    cursor: str


@record
class CheckIn:
    """-> [us, run, since ms, top, longest ms, floor, fields, run now, durable]; `look` changes nothing."""

    read_only: bool = False


@record
class Admit:
    """Give a node its vote. -> [us, 1 or 0]"""

    since: int  # ms, as it was seen: a node that lost its memory again is not meant
    quarantine: int  # ms that must have passed since then, by the node's clock
    floor: int  # it accepts no number up to this
    unused: bool = False  # only if it never accepted one


Request: TypeAlias = Vote | Renew | Release | Inspect | Evict | Scan | CheckIn | Admit
Reply: TypeAlias = "list[Any] | InterlockError"  # of a vote or a release also an int
Words: TypeAlias = str | bytes
"""What an operator said when evicting a claim: bytes, as they came from a server, or text from a simulated node."""
OnUnacknowledged: TypeAlias = Callable[[int, "Vote | Release"], None]
OnReply: TypeAlias = Callable[[int, Reply, float, float], bool]


def decoded(words: Words) -> str:
    """The operator's words as text. Replies are read as they come, so that those without such words cost nothing."""
    return words.decode() if isinstance(words, bytes) else words
