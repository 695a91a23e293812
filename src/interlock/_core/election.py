"""Elections: a lock whose claim carries the candidate's words, for everyone to read."""

from __future__ import annotations

from interlock._core import watching
from interlock._core.attempt import Attempt
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.names import checked_words
from interlock._core.runtime import Owner
from interlock._core.signature import MARK
from interlock._core.states import FINAL
from interlock._support.record import record, replaced
from interlock.errors import InvalidSetting, NotHeld
from interlock.model import Queue, Renewal, Standing
from interlock.store import IO_TIMEOUT
from interlock.who import ELECTION, Who

VALUE = "a candidate's value"


@record
class Leader:
    """The leader: the value it proclaimed, its token, and where it runs."""

    value: str
    token: int
    age: float
    who: Who

    @classmethod
    def of(cls, queue: Queue) -> Leader | None:
        holders: tuple[Standing, ...] = queue.holders
        if not holders:
            return None
        head = holders[0]
        return cls(head.note, head.token, head.age, Who.parse(head.who))


def checked_value(value: object) -> str:
    """A candidate's value, if nobody can take it for the signature of another holder."""
    words = checked_words(value, VALUE)
    if words.startswith(MARK):
        raise InvalidSetting(f"{VALUE} does not begin with the control character {MARK!r}")
    return words


class Candidacy:
    """One candidate's side of an election, and any observer's."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        holding.word = "election"
        self.client = holding.client

    def attempt(
        self, value: str, blocking: bool, timeout: float | None, owner: Owner | None = None
    ) -> Attempt:
        attempt = self.holding.attempt(blocking, timeout, note=checked_value(value), owner=owner)
        who = replaced(Who.parse(attempt.claim.who), kind=ELECTION)  # or operators would take it for a lock
        attempt.claim = replaced(attempt.claim, who=who.pack())
        return attempt

    def leading(self) -> bool:
        return any(lease.state not in FINAL for lease in list(self.holding.leases))

    async def leader(self) -> Leader | None:
        return Leader.of(await self.client.store.inspect(self.holding.resource))

    async def next(
        self, seen: Queue | None, known: Leader | None, timeout: float | None
    ) -> tuple[Queue, Leader | None] | None:
        """The next leader that differs from `known`, with the queue it was read from."""
        runtime = self.client.runtime
        until = None if timeout is None else runtime.now() + timeout
        while True:
            left = None if until is None else max(0.0, until - runtime.now())
            queue = await watching.changed(self.client, self.holding.resource, seen, left)
            if queue is None:
                return None
            leader = Leader.of(queue)
            if seen is None or _key(leader) != _key(known):
                return queue, leader
            seen = queue

    async def proclaim(self, value: str) -> None:
        """Change the value of a won election; `NotHeld` or `LeaseLost` for a candidate that does not lead."""
        lease = self._leading()
        lease.check()
        ask = Renewal(self.holding.resource, lease.id, lease.ttl, checked_value(value))
        asked = self.client.runtime.now()
        answer = await self.client.renew_one(ask, IO_TIMEOUT)
        lease._on_reply(asked, answer)
        lease.check()

    async def resign(self, by: Owner | None = None) -> None:
        await self._leading()._give_back(strict=True, by=by or self.client.runtime.owner())

    def _leading(self) -> Lease:
        lease = next(iter(reversed(list(self.holding.leases))), None)
        if lease is None:
            raise NotHeld(f"{self.holding.resource}: this candidate does not lead")
        return lease


def _key(leader: Leader | None) -> tuple[int, str] | None:
    return None if leader is None else (leader.token, leader.value)
