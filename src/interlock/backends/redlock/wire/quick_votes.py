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
from typing import Any, NamedTuple

from interlock.backends.redis.wire.keys import REMEMBERED_NAMES, Keys, companion
from interlock.backends.redis.wire.packing import millis
from interlock.backends.redis.wire.resp import ErrorReply, ProtocolError, bulk, command
from interlock.backends.redis.wire.scripts import Call
from interlock.backends.redlock.wire.packed import RUN_ID_LENGTH, Identity, Packed
from interlock.backends.redlock.wire.requests import UNDECIDED, Vote
from interlock.model import Claim

CLOCK_DIGITS = 16  # of a clock in microseconds, from 2001 to 2286
SEAT_SIZE = 1 + CLOCK_DIGITS
MEMBER_START = (
    1 + RUN_ID_LENGTH + SEAT_SIZE
)  # bytes of a number's name: =, run id and seat; the resource follows
ACCEPTED = [b"OK", 0, 1]

_NO_SCRIPT = Call(b"", b"")
PART = Packed(_NO_SCRIPT, b"", 0)
PARTS = (PART, PART, PART)
"""Stand for the commands of a quick vote, but for the last, where a connection notes what is unanswered."""


class QuickVote(Packed):
    """A quick vote. Between its parts go the node's clock, for the record, and its seat.

    The sizes of both are announced in the parts. A clock that stands before 2001 has a digit less: such a node, and one whose
    seat or run id is not known, is asked by its script.
    """

    __slots__ = ("_clocks", "_end", "_middle", "_pack_script", "_script", "_seats", "_start")

    def __init__(
        self, vote: Vote, start: bytes, middle: bytes, end: bytes, pack_script: Callable[[Vote], Packed]
    ) -> None:
        super().__init__(_NO_SCRIPT, b"", 0, b"", vote)
        self._start, self._middle, self._end = start, middle, end
        self._seats, self._clocks = vote.seats, vote.clocks
        self._pack_script = pack_script
        self._script: Packed | None = None

    def to(self, node: int, identity: Identity) -> bytes:
        """The request for a node; nothing if it can only be asked by its script."""
        if (seat := self._seats[node]) and (clock := self._clocks[node]) and (run := identity[3]):
            return self._start + clock + self._middle + run + seat + self._end
        return b""

    def by_hash(self, identity: Identity, node: int) -> bytes:
        return self._by_script().by_hash(identity, node)

    def with_source(self, identity: Identity, node: int) -> bytes:
        return self._by_script().with_source(identity, node)

    def _by_script(self) -> Packed:
        if self._script is None:
            assert isinstance(self.request, Vote)
            self._script = self._pack_script(self.request)
        return self._script


class Frame(NamedTuple):
    """What is the same in all quick votes of one caller for one resource."""

    start: bytes  # SET, and the holder's key
    size: int  # of the record without id and ballot
    middle: bytes  # from the clock in the record to the ballot in ZADD
    name: bytes  # the size of the number's name, encoded, and the = that it begins with
    end: bytes  # from the resource in the number's name to the end


class QuickVotes:
    """Encodes quick votes for the quorum of one prefix."""

    def __init__(self, keys: Keys, quorum: bytes, pack_script: Callable[[Vote], Packed]) -> None:
        self._keys = keys
        self._quorum = quorum  # its key, encoded
        self._pack_script = pack_script
        self._frames: dict[tuple[str, float, str], Frame] = {}  # by resource, ttl and who

    def pack(self, vote: Vote) -> Packed:
        claim = vote.claim
        frame = self._frames.get((claim.resource, claim.ttl, claim.who)) or self._frame(claim)
        id, ballot = claim.id.encode(), b"%d" % vote.ballot
        size = frame.size + len(id) + len(ballot)
        start = b"%b$%d\r\n%b\n%b\n" % (frame.start, size, id, ballot)
        middle = b"%b$%d\r\n%b\r\n%b" % (frame.middle, len(ballot), ballot, frame.name)
        return QuickVote(vote, start, middle, frame.end, self._pack_script)

    def _frame(self, claim: Claim) -> Frame:
        assert not claim.note, "a claim with a note is voted for by script: see `Membership.quick_seats`"
        holder, ttl = self._keys.holder(claim.resource), millis(claim.ttl)
        record_end = b"\n%b\n1\n\n0\n%b" % (ttl, claim.who.encode())
        middle = [
            record_end + b"\r\n" + bulk(b"NX") + bulk(b"PX") + bulk(ttl),
            command(b"EXISTS", companion(holder, b"h")),
            b"*7\r\n" + bulk(b"ZADD") + self._quorum + bulk(b"XX") + bulk(b"GT") + bulk(b"CH"),
        ]
        found = Frame(
            b"*6\r\n" + bulk(b"SET") + bulk(holder),
            len(b"\n\n") + CLOCK_DIGITS + len(record_end),
            b"".join(middle),
            b"$%d\r\n=" % (MEMBER_START + len(holder)),
            holder + b"\r\n" + command(b"TIME"),
        )
        if len(self._frames) >= REMEMBERED_NAMES:
            self._frames.clear()
        self._frames[claim.resource, claim.ttl, claim.who] = found
        return found


def quick_reply(parts: list[Any], clock: Any) -> Any:
    """The reply to a quick vote, as `requests` describes it, from the replies to its commands; or the error among them."""
    if parts == ACCEPTED and clock.__class__ is list:
        us: bytes = clock[0] + clock[1].rjust(6, b"0")
        return us
    for part in (*parts, clock):
        if isinstance(part, ErrorReply):
            return part
    if len(parts) != len(PARTS) or clock.__class__ is not list:  # a caller was interrupted while it read them
        raise ProtocolError("the replies to a vote are incomplete")
    return [int(clock[0] + clock[1].rjust(6, b"0")), UNDECIDED, int(parts[0] is not None)]
