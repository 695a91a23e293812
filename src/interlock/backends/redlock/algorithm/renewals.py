"""Renewing and releasing on a majority; a claim that a majority holds is entered on the nodes that miss it.

The leases are those of Gray and Cheriton ("Leases", 1989): a claim lapses by itself unless it is renewed, and
the holder counts its time from before the request was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from interlock._support.record import replaced
from interlock.backends.redlock.algorithm.clock import DRIFT_PART
from interlock.backends.redlock.algorithm.membership import Held
from interlock.backends.redlock.quorum import QUARANTINED, ROUND_TIMEOUT_S, Quorum
from interlock.backends.redlock.wire.requests import (
    GONE,
    NO_VOTE,
    RENEWED,
    STRAY,
    Release,
    Renew,
    RenewalItem,
    Reply,
    Vote,
    Words,
    decoded,
)
from interlock.errors import InterlockError
from interlock.model import Claim, Gone, NoAnswer, Renewal, RenewAnswer, Renewed

RENEWALS_PER_SCRIPT = 100  # renewals in one script call: more would block the server for other clients
MIN_RENEWED_S = 0.001  # seconds: a renewal for so short a time only asks, because no renewal shortens a lease


async def renew(quorum: Quorum, renewals: Sequence[Renewal], timeout: float) -> list[RenewAnswer]:
    until = quorum.now() + timeout
    answers: list[RenewAnswer] = []
    for start in range(0, len(renewals), RENEWALS_PER_SCRIPT):
        left = max(0.001, until - quorum.now())
        answers += await _renew(quorum, renewals[start : start + RENEWALS_PER_SCRIPT], left)
    return answers


class RenewalReplies:
    """What the nodes answered for each claim of a batch."""

    def __init__(self, quorum: Quorum) -> None:
        self._members = quorum.members
        self._sent: float | None = None  # when the nodes were asked, once there were connections
        self.said: dict[int, str | InterlockError] = {}
        self.trusted: dict[int, list[int | Words]] = {}  # by node, one answer for each claim
        self.jumped: dict[int, list[int | Words]] = {}  # the same, of nodes that do not count

    def late(self, now: float) -> bool:
        """Whether the round took so long that it does not count."""
        return self._sent is not None and now - self._sent >= ROUND_TIMEOUT_S

    def on_reply(self, node: int, reply: Reply, sent: float, received: float) -> bool:
        if isinstance(reply, InterlockError):
            self.said[node] = reply
            return False
        self._sent = sent
        counts = self._members.counts(node, reply[0], sent, received)
        if reply[1] == NO_VOTE:
            self._members.mark_non_voting(node)
            self.said[node] = (
                QUARANTINED if reply[2] else "restarted: whether it lost its memory is not known yet"
            )
        elif counts:
            self.trusted[node] = reply[2:]
        else:
            self.said[node] = "its clock jumped"
            self.jumped[node] = reply[2:]
        return False  # wait for all nodes that are here: it must be known which of them miss a claim

    def of(self, item: int) -> dict[int, int | Words]:
        return {node: answers[item] for node, answers in self.trusted.items()}


async def _renew(quorum: Quorum, renewals: Sequence[Renewal], timeout: float) -> list[RenewAnswer]:
    members = quorum.members
    items: list[RenewalItem] = []
    for r in renewals:
        members.note_ttl(r.ttl)
        held = members.held.get(r.id)
        items.append(RenewalItem(r.resource, r.id, r.ttl, r.note, r.permits, held.token if held else 0))
    answers = RenewalReplies(quorum)
    await quorum.ask(Renew(tuple(items)), answers.on_reply, quorum.within(timeout))
    if answers.late(quorum.now()):  # this process was stopped: a node that renewed may have restarted since
        return [NoAnswer(f"{r.resource}: the answers came too late to count") for r in renewals]
    return [await _verdict(quorum, r, answers, n) for n, r in enumerate(renewals)]


async def _verdict(quorum: Quorum, renewal: Renewal, answers: RenewalReplies, item: int) -> RenewAnswer:
    members, said = quorum.members, answers.of(item)
    renewed = [node for node, answer in said.items() if answer == RENEWED]
    if len(renewed) >= members.majority:
        missing = [node for node, answer in said.items() if answer in (GONE, STRAY)]
        await _renewed(quorum, renewal, missing)
        return Renewed(renewal.ttl)
    reported = [*said.values(), *(answers.jumped[node][item] for node in answers.jumped)]
    reasons = [answer for answer in reported if not isinstance(answer, int)]
    lost = sum(answer == QUARANTINED for answer in answers.said.values())
    # A node with a stray claim can be filled in only while a majority holds ours; after a clock's jump it may
    # have lapsed early.
    without = sum(answer in (GONE, STRAY) for answer in reported) + len(reasons) + lost
    if members.size - without < members.majority:
        members.held.pop(renewal.id, None)
        return Gone(True, decoded(reasons[0])) if reasons else Gone()
    words: dict[int, str | InterlockError] = {**dict.fromkeys(renewed, "renewed"), **answers.said}
    return NoAnswer(str(quorum.too_few(f"{renewal.resource}: a renewal", words)))


async def _renewed(quorum: Quorum, renewal: Renewal, missing: list[int]) -> None:
    """Remember the claim as it is now, and enter it on nodes that miss it: a majority holds it."""
    members = quorum.members
    held = members.held.get(renewal.id)
    if held is None:
        return  # another store was granted it, whose own renewals fill it in
    claim = held.claim
    if renewal.note is not None:
        claim = replaced(claim, note=renewal.note)
    if renewal.permits is not None and renewal.permits < claim.permits:
        claim = replaced(claim, permits=renewal.permits)
    until = quorum.now() + renewal.ttl * (1 + DRIFT_PART)
    if renewal.id in members.held:  # not if it was released meanwhile
        members.held[renewal.id] = Held(claim, held.token, until)
        if missing:
            await _fill(quorum, replaced(claim, ttl=renewal.ttl), held.token, missing)


async def _fill(quorum: Quorum, claim: Claim, token: int, missing: list[int]) -> None:
    """Enter a claim that a majority holds on nodes that miss it."""
    await quorum.notify(Vote(claim, token, fill=True), missing)
    held = quorum.members.held.get(claim.id)
    if held is None or held.token != token:  # it was released meanwhile, perhaps before it was entered
        # Only up to this number: a caller that was granted too late claims again under the same id, and that
        # claim must stay.
        await quorum.notify(Release(claim.resource, claim.id, 0.0, token), missing)


async def refill(quorum: Quorum, nodes: Collection[int], timeout: float) -> None:
    """Enter our claims on nodes that are back, if a majority still holds them, for what is left of each ttl.

    This is no renewal: a lease that its owner lets lapse must not last longer because a node was away.
    """
    members = quorum.members
    held = [one for one in list(members.held.values()) if one.until > quorum.now() + MIN_RENEWED_S]
    for start in range(0, len(held), RENEWALS_PER_SCRIPT):
        batch, answers = held[start : start + RENEWALS_PER_SCRIPT], RenewalReplies(quorum)
        items = [
            RenewalItem(one.claim.resource, one.claim.id, MIN_RENEWED_S, None, None, one.token)
            for one in batch
        ]
        await quorum.ask(Renew(tuple(items)), answers.on_reply, quorum.within(timeout))
        if answers.late(quorum.now()):
            return
        for n, one in enumerate(batch):
            said = answers.of(n)
            missing = [node for node in nodes if said.get(node) in (GONE, STRAY)]
            left = one.until - quorum.now()
            if missing and left > MIN_RENEWED_S and list(said.values()).count(RENEWED) >= members.majority:
                claim = members.held.get(one.claim.id, one).claim  # a renewal may have changed its note
                await _fill(quorum, replaced(claim, ttl=left), one.token, missing)


async def release(quorum: Quorum, request: Release, timeout: float) -> bool:
    """Release on all nodes; return whether the claim may have stood on a majority."""
    members = quorum.members
    members.held.pop(request.id, None)
    if request.linger > 0:
        members.note_ttl(request.linger)
    removed: list[int] = []
    absent: list[int] = []
    said: dict[int, str | InterlockError] = {}

    def on_reply(node: int, reply: int | InterlockError, sent: float, received: float) -> bool:
        if isinstance(reply, InterlockError):
            said[node] = reply
            return False
        answered = removed if reply == 1 else absent
        answered.append(node)
        return len(answered) >= members.majority

    timeouts = quorum.within(timeout)
    unanswered = await quorum.transport.ask(  # as `Quorum.ask`, but for a coroutine on the hot path
        request, members.everyone, members.present, on_reply, timeouts
    )
    if unanswered or members.unhealthy:
        quorum.recover(request, members.everyone, unanswered, timeouts)
    if len(removed) >= members.majority:
        return True
    if len(removed) + len(absent) < members.majority:
        raise quorum.too_few(
            f"{request.resource}: a release", {**dict.fromkeys([*removed, *absent], "done"), **said}
        )
    return len(absent) < members.majority
