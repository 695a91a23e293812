"""Claiming on a majority, with a number that no other attempt has: one round, unless some node has seen a
higher number.

    T1 -> Vote to all -> a majority holds the claim and accepted the same number  granted
                      -> a majority holds it, but some node has seen more         again, with a higher ballot
                      -> others are in the way, or too few answer                 taken back on all nodes

The number is a ballot, as in Paxos (Leslie Lamport, "The Part-Time Parliament", 1998). It is unique, and
above the number of every grant that was complete before this attempt began, whatever the clocks do: any two
majorities have a node in common, and a node accepts a number once. So it serves as the fencing token that
Martin Kleppmann missed in Redlock ("How to do distributed locking", 2016).
"""

from __future__ import annotations

from typing import Any

from interlock._support.wording import duration
from interlock.backends.redlock.algorithm.clock import DRIFT_PART, SLACK_S
from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.quorum import QUARANTINED, ROUND_TIMEOUT_S, Quorum
from interlock.backends.redlock.wire.requests import (
    BUSY,
    EVICTED,
    MISMATCH,
    NO_VOTE,
    TOO_LOW,
    Release,
    Reply,
    Vote,
    decoded,
)
from interlock.errors import InterlockError, SettingsMismatch, StoreUnavailable, StoreUnfit, Unreached
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Standing

MAX_ROUNDS = 5  # rounds, each with a higher ballot, after which the attempt fails
MAX_STEPS = 8  # round trips within which new nodes get their votes
MIN_TTL_PART = 0.1  # the part of a ttl that must be left when the majority has answered


class Votes:
    """What the nodes said in one round."""

    replied = 0
    sent = 0.0  # when the nodes were asked, once there were connections
    accepted = 0  # nodes that count and hold the claim under our ballot
    holding = 0  # nodes that count and hold the claim
    ahead = 0
    seen = 0  # the highest number in the way of our ballot
    evicted: str | None = None
    mismatch = 0

    def __init__(self, members: Membership, vote: Vote) -> None:
        self._members = members
        self._vote = vote
        self.stands: list[int] = []  # nodes that hold the claim, whether they count or not
        self.busy: dict[int, list[Any]] = {}  # by node: what it says of the claims in the way
        self.said: dict[int, str | InterlockError] = {}

    def on_reply(self, node: int, reply: bytes | Reply, sent: float, received: float) -> bool:
        self.replied += 1
        self.sent = sent
        members = self._members
        if isinstance(reply, bytes):
            clock = members.learn_seat(node, self._vote, reply)
            self.stands.append(node)
            if not members.counts(node, clock, sent, received):
                self.said[node] = "its clock jumped"
            else:
                self.holding += 1
                self.accepted += 1
                if self.accepted >= members.majority:
                    return True
                if self.accepted == self.replied:  # nobody has refused so far, and a majority is in reach
                    return False
        elif isinstance(reply, InterlockError):
            self.said[node] = reply
        elif isinstance(reply, list):
            self._not_accepted(node, reply, members.counts(node, reply[0], sent, received))
        pending = members.size - self.replied
        if self.holding + pending < members.majority:
            # A majority is out of reach. Go on until a majority has said whether others hold it, or cannot
            # any more: if a node without a vote among the first to answer ended the round, the claim would
            # fail instead of waiting for its holder.
            known = self.holding + len(self.busy)
            return known >= members.majority or known + pending < members.majority
        return self.accepted + pending < members.majority <= self.holding  # only a higher ballot can help

    @property
    def refused(self) -> set[int]:
        """Nodes that said themselves that they hold nothing of this attempt."""
        refusals = ("evicted", "another capacity")
        return {node for node, said in self.said.items() if node in self.busy or said in refusals}

    def _not_accepted(self, node: int, reply: list[Any], counts: bool) -> None:
        code = reply[1]
        if code == TOO_LOW:
            self.stands.append(node)
            if not counts:
                self.said[node] = "its clock jumped"
            else:
                self.holding += 1
                self.seen = max(self.seen, reply[2])
        elif code == BUSY:
            self.busy[node] = reply
            self.ahead = max(self.ahead, reply[2])
            self.said[node] = "refused"
        elif code == EVICTED:
            self.evicted = decoded(reply[2])
            self.said[node] = "evicted"
        elif code == MISMATCH:
            self.mismatch = reply[2]
            self.said[node] = "another capacity"
        elif code == NO_VOTE:
            self._members.mark_non_voting(node)
            self.said[node] = QUARANTINED


async def claim(quorum: Quorum, claim: Claim, timeout: float, first: bool = False) -> ClaimAnswer:
    """A majority's answer to one claim; see `Store.claim`. It never queues.

    `first` marks the first claim of a client: neither connecting nor starting new nodes counts towards its
    timeout.
    """
    began = quorum.now()
    votes = await vote(quorum, claim, began, timeout)
    return votes if isinstance(votes, Granted) else await refused(quorum, claim, votes, began, timeout, first)


async def refused(
    quorum: Quorum, claim: Claim, votes: Votes, began: float, timeout: float, first: bool = False
) -> ClaimAnswer:
    """The answer to a claim that no majority has accepted; new nodes are given their votes, and asked once
    more.
    """
    members = quorum.members
    if QUARANTINED in votes.said.values() and not votes.busy:
        # New nodes get their votes when they are first used; and others may have been admitted meanwhile.
        left = timeout - (quorum.now() - began)
        if first:
            left = max(left, MAX_STEPS * quorum.transport.round_trip(members.size))
        if left > 0 and await quorum.recovery.run_now(left):
            again = await vote(quorum, claim, began, timeout)
            if isinstance(again, Granted):
                return again
            votes = again
    try:
        return _refusal(quorum, claim, votes)
    except StoreUnavailable as error:
        if await _nowhere(quorum, claim, votes):
            raise Unreached(str(error)) from None
        raise


async def vote(quorum: Quorum, claim: Claim, began: float, timeout: float) -> Granted | Votes:
    """The grant; or, once the attempt is taken back, what the nodes said, for `refused`."""
    members, connecting = quorum.members, 0.0
    members.note_ttl(claim.ttl)
    ballot, rounds = members.ballot(quorum.wall()), 0
    while True:
        rounds += 1
        asked = quorum.now()
        request = Vote(claim, ballot, False, members.seats_for(claim.ttl))
        votes, left = Votes(members, request), timeout - (asked - began - connecting)
        timeouts = quorum.once_connected(max(0.001, left))
        unanswered = await quorum.transport.ask(  # as `Quorum.ask`, but for a coroutine on the hot path
            request, members.everyone, members.present, votes.on_reply, timeouts
        )
        if unanswered or members.unhealthy:
            quorum.recover(request, members.everyone, unanswered, timeouts)
        now = quorum.now()
        if votes.accepted >= members.majority:
            if (
                now - votes.sent < ROUND_TIMEOUT_S
                and claim.ttl * (1 - DRIFT_PART - MIN_TTL_PART) - SLACK_S > now - began
            ):
                members.hold(claim, ballot, now)
                return Granted(ballot, claim.ttl)
            votes.said = {node: f"granted, but only after {duration(now - began)}" for node in votes.stands}
            votes.busy = {}
            break
        over = votes.evicted is not None or left <= 0 or rounds == MAX_ROUNDS
        if over or votes.holding < members.majority:
            break
        connecting += votes.sent - asked
        members.note_number(votes.seen)
        try:
            ballot = members.ballot(0)
        except StoreUnfit:
            await _take_back(quorum, claim, ballot, votes)
            raise
    await _take_back(quorum, claim, ballot, votes)
    return votes


class Acknowledgements:
    """Counts replies until each of so many nodes has answered."""

    def __init__(self, nodes: int) -> None:
        self._left = nodes
        self.done: set[int] = set()  # nodes that carried out the request

    def on_reply(self, node: int, reply: int | InterlockError, sent: float, received: float) -> bool:
        self._left -= 1
        if not isinstance(reply, InterlockError):
            self.done.add(node)
        return self._left == 0


async def _take_back(quorum: Quorum, claim: Claim, ballot: int, votes: Votes) -> None:
    """Remove the claim from every node that may hold it; a node that refused it holds nothing.

    Nodes known to hold it are waited for unless they are away; the others are only notified.
    """
    undo = Release(claim.resource, claim.id, 0.0, ballot)
    refused = votes.refused
    where = [node for node in quorum.members.everyone if node not in refused]
    await quorum.notify(undo, [node for node in where if node not in votes.stands])
    if votes.stands:
        acknowledged = Acknowledgements(len(votes.stands))
        await quorum.ask(undo, acknowledged.on_reply, quorum.within(quorum.usual), votes.stands)


async def _nowhere(quorum: Quorum, claim: Claim, votes: Votes) -> bool:
    """Whether it is certain that no node holds the claim: then the caller is told that nothing was left
    behind.
    """
    members, refused = quorum.members, votes.refused
    unsent = {node for node, said in votes.said.items() if isinstance(said, Unreached)}
    doubtful = [node for node in members.everyone if node not in refused and node not in unsent]
    acknowledged = Acknowledgements(len(doubtful))
    if doubtful and members.away.isdisjoint(doubtful):
        undo = Release(claim.resource, claim.id, 0.0, members.highest)
        await quorum.ask(undo, acknowledged.on_reply, quorum.within(quorum.usual), doubtful)
    return len(acknowledged.done) == len(doubtful)


def _refusal(quorum: Quorum, claim: Claim, votes: Votes) -> ClaimAnswer:
    members = quorum.members
    if votes.evicted is not None:
        return Gone(True, votes.evicted)
    if votes.mismatch:
        raise SettingsMismatch(claim.resource, claim.capacity, votes.mismatch)
    if votes.busy and len(votes.busy) + votes.holding >= members.majority:
        lapses = sorted([reply[3] for reply in votes.busy.values()])
        needed = min(len(lapses), max(1, members.majority - votes.holding))
        return Busy(max(1, votes.ahead), lapses[needed - 1] / 1000, _holder(quorum, votes))
    if votes.holding >= members.majority and not votes.said:
        return _outbid(claim)
    said = {**dict.fromkeys(votes.stands, "granted"), **votes.said}
    raise quorum.too_few(f"{claim.resource}: a claim", said)


def _holder(quorum: Quorum, votes: Votes) -> Standing | None:
    """The oldest holder, if a majority named the same one; fewer may have seen an attempt that is under
    way.
    """
    named: dict[tuple[str, int], int] = {}
    if len(votes.busy) >= quorum.members.majority:
        for reply in votes.busy.values():
            holder = quorum.transport.standing(reply)
            if holder is not None:
                key = (holder.id, holder.token)
                named[key] = named.get(key, 0) + 1
                if named[key] >= quorum.members.majority:
                    return holder
    return None


def _outbid(claim: Claim) -> ClaimAnswer:
    raise StoreUnavailable(
        f"{claim.resource}: other clients raised its number in each of {MAX_ROUNDS} rounds; try again"
    )
