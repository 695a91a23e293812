"""Quick votes: votes by plain commands, without the script.

Most votes concern a name that the client has locked a moment ago and that nobody else wants. For these, four plain commands do
what the script does, in a third of the server's time:

    SET holder record NX PX ttl              nobody has the holder's key: the claim stands
    EXISTS records                           nobody shares the resource, and no operator has evicted a claim on it
    ZADD quorum XX GT CH ballot =seat name   the number is raised: it was there, under the name of the seat, and lower
    TIME                                     the clock

If the answers are OK, 0 and 1, the node has accepted. Any other answers are UNDECIDED, and the script is asked.

Requests of others may come between the commands, and the connection may break there. Nothing goes wrong then: once the claim
stands nobody else can enter, a claim without a number does not count, and a number that was raised without a claim only makes
others choose a higher one. The order matters: EXISTS follows SET, so that a claim to share that came first is seen.

That there is a number of this name says three things: this process has its vote, since numbers exist only while it has, and
the name contains its run id; it has not lost its memory since the client learnt its seat, which the name contains, too; and so
it remembers a ttl as long as this one, if a script has noted such a ttl in the same seat (`Membership.quick_seats`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.backends.redis.wire.keys import REMEMBERED_NAMES, Keys, companion
from interlock.backends.redis.wire.resp import ErrorReply, ProtocolError, bulk, command
from interlock.backends.redis.wire.scripts import Call
from interlock.backends.redlock.wire.packed import RUN_ID_LENGTH, TTLS, Identity, Packed, encoded_ttl
from interlock.backends.redlock.wire.requests import UNDECIDED, Vote

CLOCK_DIGITS = 16  # of a clock in microseconds, from 2001 to 2286
SEAT_SIZE = 1 + CLOCK_DIGITS
MEMBER_START = (
    1 + RUN_ID_LENGTH + SEAT_SIZE
)  # bytes of a number's name before the resource's: =, run id, seat
ACCEPTED = [b"OK", 0, 1]

_NO_SCRIPT = Call(b"", b"")
PART = Packed(_NO_SCRIPT, b"", 0)
PARTS = (PART, PART, PART)
"""Stand for the commands of a quick vote, but for the last, where a connection notes what is unanswered."""


class QuickVote:
    """The parts of a quick vote; between them go the node's clock, for the record, and its seat."""

    __slots__ = ("_clocks", "_end", "_middle", "_seats", "_start")

    def __init__(self, start: bytes, middle: bytes, end: bytes, vote: Vote) -> None:
        self._start, self._middle, self._end = start, middle, end
        self._seats, self._clocks = vote.seats, vote.clocks

    def to(self, node: int, identity: Identity) -> bytes:
        """The request for a node; nothing if it can only be asked by its script."""
        seat, clock, run = self._seats[node], self._clocks[node], identity[3]
        # The sizes are announced in the parts: a clock that stands before 2001 has a digit less.
        if seat is None or len(seat) != SEAT_SIZE or len(clock) != CLOCK_DIGITS or not run:
            return b""
        return self._start + clock + self._middle + run + seat + self._end


class PackedQuickVote(Packed):
    """A quick vote. For nodes that can only be asked by their script it becomes a vote by script."""

    __slots__ = ("_pack_script", "_script")

    def __init__(self, vote: Vote, quick: QuickVote, pack_script: Callable[[Vote], Packed]) -> None:
        super().__init__(_NO_SCRIPT, b"", 0, b"", vote)
        self.quick = quick
        self._pack_script = pack_script
        self._script: Packed | None = None

    def _by_script(self) -> Packed:
        if self._script is None:
            assert isinstance(self.request, Vote)
            self._script = self._pack_script(self.request)
        return self._script

    def by_hash(self, identity: Identity, node: int) -> bytes:
        return self._by_script().by_hash(identity, node)

    def with_source(self, identity: Identity, node: int) -> bytes:
        return self._by_script().with_source(identity, node)


class QuickVotes:
    """Encodes quick votes for the quorum of one prefix."""

    def __init__(self, keys: Keys, quorum: bytes, pack_script: Callable[[Vote], Packed]) -> None:
        self._keys = keys
        self._quorum = quorum  # its key, encoded
        self._pack_script = pack_script
        self._known: dict[str, tuple[bytes, bytes, bytes, int]] = {}  # by resource: see `_parts`

    def pack(self, vote: Vote) -> Packed:
        claim = vote.claim
        start, between, end, name_size = self._known.get(claim.resource) or self._parts(claim.resource)
        note, ttl, ballot = (
            claim.note.encode(),
            TTLS.get(claim.ttl) or encoded_ttl(claim.ttl),
            b"%d" % vote.ballot,
        )
        digits = ttl[ttl.index(b"\n") + 1 : -2]
        record_start = b"%b\n%b\n" % (claim.id.encode(), ballot)
        record_end = b"\n%b\n1\n\n%d\n%b%b" % (digits, len(note), note, claim.who.encode())
        middle = b"%b\r\n$2\r\nNX\r\n$2\r\nPX\r\n%b%b$%d\r\n%b\r\n$%d\r\n=" % (
            *(record_end, ttl, between),
            *(len(ballot), ballot, name_size),
        )
        size = len(record_start) + CLOCK_DIGITS + len(record_end)
        quick = QuickVote(b"%b$%d\r\n%b" % (start, size, record_start), middle, end, vote)
        return PackedQuickVote(vote, quick, self._pack_script)

    def _parts(self, resource: str) -> tuple[bytes, bytes, bytes, int]:
        """What is the same in all quick votes for one resource, and the size of its number's name."""
        holder = self._keys.holder(resource)
        start = b"*6\r\n" + bulk(b"SET") + bulk(holder)
        exists = command(b"EXISTS", companion(holder, b"h"))
        zadd = b"*7\r\n" + bulk(b"ZADD") + self._quorum + b"".join([bulk(b"XX"), bulk(b"GT"), bulk(b"CH")])
        found = start, exists + zadd, holder + b"\r\n" + command(b"TIME"), MEMBER_START + len(holder)
        if len(self._known) >= REMEMBERED_NAMES:
            self._known.clear()
        self._known[resource] = found
        return found


def quick_reply(parts: list[Any], clock: Any) -> Any:
    """The reply to a quick vote, as `requests` describes it, from the replies to its commands; or the error among them."""
    for part in (*parts, clock):
        if isinstance(part, ErrorReply):
            return part
    if len(parts) != len(PARTS) or clock.__class__ is not list:  # a caller was interrupted while it read them
        raise ProtocolError("the replies to a vote are incomplete")
    us = clock[0] + clock[1].rjust(6, b"0")
    return us if parts == ACCEPTED else [int(us), UNDECIDED, int(parts[0] is not None)]
