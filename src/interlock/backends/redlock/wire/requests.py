"""The requests to a node, as records, and the replies.

Only the transports to real servers know bytes (`packing`). A reply is a list that begins with the node's
clock in microseconds; the header of each script says what follows. The clock alone, as digits, means that a
vote was accepted; behind the clock, after a space, the node may tell since when it has its vote. A release is
answered by 1 or 0. `testing.redlock_node` says in Python what the scripts do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from interlock._support.record import record
from interlock.errors import InterlockError
from interlock.model import Claim

TOO_LOW, BUSY, EVICTED, MISMATCH, NO_VOTE = 2, 0, -1, -2, -9
"""The second part of the reply to a vote that was not accepted. After BUSY follow the number of claims ahead,
the ms until those in the way lapse, and the oldest holder, which `QuorumTransport.standing` reads.
"""

Seat: TypeAlias = bytes
"""A colon, and since when a node has its vote: microseconds on its clock, as digits. Together with the run
id, which the node's connection knows, it names one life of the node's memory: a node that forgets gets
another seat.
"""

RENEWED, GONE, STRAY = 1, 0, 2
"""The answer of a renewal for one claim; words instead of a number are the reason for which an operator
evicted it.
"""


@record
class Vote:
    """Enter the claim, and accept the ballot as its number. -> us, or [us, TOO_LOW...NO_VOTE, ...]

    A vote that names the node's seat takes the shortest way through the script. It may name a seat only if
    the node is known to remember, in that seat, a ttl as long as the claim's.
    """

    claim: Claim
    ballot: int
    fill: bool = False  # a majority already holds it under this number: enter it here too
    seats: Sequence[Seat | None] = ()  # by node, those that may be named; none may


@record
class RenewalItem:
    """One claim to renew, with its holder's token (0: any token)."""

    resource: str
    id: str
    ttl: float
    note: str | None
    permits: int | None
    token: int


@record
class Renew:
    """Extend many claims. -> [us, 1, answer, ...] or [us, NO_VOTE, whether it certainly lost its memory]"""

    items: tuple[RenewalItem, ...]


@record
class Release:
    """Remove a claim, unless a later ballot than `upto` entered it (0: in any case). -> 1, or 0 if it did
    not stand
    """

    resource: str
    id: str
    linger: float = 0.0
    upto: int = 0


@record
class Inspect:
    """Show who stands. -> [us, 1 or NO_VOTE, capacity, (Standing, ...)]; a limit keeps those with the
    lowest tokens.
    """

    resource: str
    limit: int | None = None


@record
class Evict:
    """Remove one claim, or with an id of None every holder. -> [us, 1 or NO_VOTE, (Standing, ...)]

    A node answers `ForeignKey` if the resource is another program's key that the request does not allow it to
    remove.
    """

    resource: str
    id: str | None
    reason: str
    foreign: bool = False  # remove also a string that another program wrote
    no_expiry: bool = False  # even if that has no expiry


@record
class Scan:
    """One step over the names on a node. The cursor '' begins and ends. -> [us, cursor, (name, ...)]"""

    prefix: str
    cursor: str


@record
class CheckIn:
    """Ask a node for its state, and begin its quarantine if it lost its memory, unless `read_only`.

    -> [us, run, since ms, top, longest ms, floor, fields, run now, durable, ready, begun]
    """

    read_only: bool = False


@record
class Admit:
    """Give a node its vote. -> [us, 1 or 0]"""

    since: int  # ms, as last seen: a node that lost its memory again meanwhile is not admitted
    quarantine: int  # ms that must have passed since then, by the node's clock
    floor: int  # the node accepts no number up to this
    start: int = 0  # only if the node has begun in this start, and never had a vote


@record
class Start:
    """Tell a node without a vote how far its quorum has begun: see `algorithm.beginning`. -> [us, 1 or 0]"""

    since: int  # ms, as last seen
    start: int  # 0: it is not one of those that begin
    begun: bool = False  # every node is ready for this start; otherwise this node is


Request: TypeAlias = Vote | Renew | Release | Inspect | Evict | Scan | CheckIn | Admit | Start
Clock: TypeAlias = int | bytes
"""A node's clock in microseconds: digits, as they came from a server, or the number from a simulated node."""
Reply: TypeAlias = "list[Any] | InterlockError"  # of a vote also a clock, of a release an int
Words: TypeAlias = str | bytes
"""What an operator said when evicting a claim: bytes, as they came from a server, or text from a simulated
node.
"""
OnUnacknowledged: TypeAlias = Callable[[int, "Vote | Release"], None]
OnReply: TypeAlias = Callable[[int, Any, float, float], bool]
OnLateVote: TypeAlias = Callable[[int, Vote, "bytes | list[Any]", float, float], None]


def decoded(words: Words) -> str:
    """The operator's words as text.

    Replies are read as they come, so that those without such words cost nothing.
    """
    return words.decode() if isinstance(words, bytes) else words
