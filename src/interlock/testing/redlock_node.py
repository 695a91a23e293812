"""One node of a quorum in plain Python: the executable specification of the Lua scripts, for simulation and
comparison.

A node keeps its claims and a small table (a sorted set on a server): its run id, since when it has its vote
or its quarantine, the longest ttl it granted, and for each resource the highest number it accepted. `restart`
and `flush` take from it what they take from a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.backends.redlock.wire.requests import (
    BUSY,
    EVICTED,
    GONE,
    MISMATCH,
    NO_VOTE,
    RENEWED,
    STRAY,
    TOO_LOW,
    Admit,
    CheckIn,
    Evict,
    Inspect,
    Release,
    Renew,
    RenewalItem,
    Request,
    Scan,
    Seat,
    Start,
    Vote,
)
from interlock.model import Claim, Standing

MIN_NUMBERS_KEPT = 512  # numbers that are kept however old they are
OLD_US = 60_000_000  # us after which a number may be merged into the floor
REMEMBERED_S = 61.0  # seconds an eviction is remembered at least
FOREIGN_PAUSE_MS = 50  # ms after which to claim again when another program holds the lock


class StandingClaim:
    """One live claim on one node.

    A lock of another program has no record of ours, and takes 1 permit of 1.
    """

    def __init__(self, claim: Claim, token: int, now: int, foreign: bool = False) -> None:
        self.claim = claim
        self.permits = claim.permits
        self.note = claim.note
        self.token = token
        self.since = now
        self.lapses = now + round(claim.ttl * 1000) * 1000
        self.foreign = foreign


class NodeMemory:
    """A server's memory, as far as a quorum needs it. `clock` answers in microseconds and may jump."""

    def __init__(self, clock: Callable[[], int], run: str = "run-1", durable: bool = False) -> None:
        self._clock = clock
        self.run = run
        self.durable = durable
        self.claims: dict[str, dict[str, StandingClaim]] = {}
        self.marks: dict[tuple[str, str], tuple[str, int]] = {}  # evictions: the operator's words, until when
        self.quorum: dict[str, Any] = {}  # run, vote, seat, since, longest, floor, durable, ready, begun
        self.numbers: dict[str, int] = {}  # only while it has its vote

    # ---- what can happen to a server ----------------------------------------------------

    def flush(self) -> None:
        """FLUSHALL: everything is gone, and the process goes on."""
        self.claims, self.marks, self.quorum, self.numbers = {}, {}, {}, {}

    def restart(self, run: str) -> None:
        """Start another process, with an empty memory unless every write was on disk."""
        if not self.durable:
            self.flush()
        self.run = run

    def set_nx(self, resource: str, value: str, ttl: float) -> bool:
        """SET NX PX by another program."""
        now = self._clock()
        if self._live(resource, now):
            return False
        self.claims[resource] = {value: StandingClaim(Claim(resource, value, ttl), 0, now, foreign=True)}
        return True

    # ---- requests -------------------------------------------------------------------

    def answer(self, request: Request, node: int = 0) -> bytes | int | list[Any]:
        """The reply to this request, as `requests` describes it; `node` is the place of this node among
        the others.
        """
        match request:
            case Vote():
                seat = request.seats[node] if request.seats else None
                return self.vote(request, seat)
            case Renew():
                return self.renew(request)
            case Release():
                return self.release(request)
            case Inspect():
                return self.inspect(request)
            case Evict():
                return self.evict(request)
            case CheckIn():
                return self.checkin(request)
            case Admit():
                return self.admit(request)
            case Start():
                return self.start(request)
            case Scan():
                now = self._clock()
                names = sorted(n for n in list(self.claims) if self._live(n, now))
                return [now, "", tuple(n for n in names if n.startswith(request.prefix))]

    @property
    def votes(self) -> bool:
        return bool(self.quorum.get("vote") == self.run)

    def _live(self, resource: str, now: int) -> dict[str, StandingClaim]:
        live = {id: s for id, s in self.claims.get(resource, {}).items() if s.lapses > now}
        if live:
            self.claims[resource] = live
        else:
            self.claims.pop(resource, None)
        return live

    def _mark(self, resource: str, id: str, now: int) -> str | None:
        words, until = self.marks.get((resource, id), ("", 0))
        return words if until > now else None

    @property
    def top(self) -> int:
        """The highest number that it accepted, never below the floor."""
        return max(int(self.quorum.get("floor", 0)), *self.numbers.values(), 0)

    def vote(self, request: Vote, seat: Seat | None = None) -> bytes | list[Any]:
        now, claim = self._clock(), request.claim
        if seat is not None and self.usual(request, seat):
            return b"%d" % now
        if not self.votes:
            return [now, NO_VOTE]
        self._forget(now)
        live = self._live(claim.resource, now)
        mark = self._mark(claim.resource, claim.id, now)
        if mark is not None:
            return [now, EVICTED, mark]
        under = next((s.claim.capacity for s in live.values()), claim.capacity)
        if under != claim.capacity:
            return [now, MISMATCH, under]
        number = max(self.numbers.get(claim.resource, 0), self.quorum.get("floor", 0))
        accepted = request.ballot > number
        stands = live.get(claim.id)
        if stands is None or stands.foreign:
            if sum(s.permits for s in live.values()) + claim.permits > claim.capacity:
                return [now, BUSY, len(live), self._retry(live, now), self._oldest(live, now)]
            stands = self.claims.setdefault(claim.resource, {})[claim.id] = StandingClaim(claim, 0, now)
        stands.lapses = max(stands.lapses, now + round(claim.ttl * 1000) * 1000)
        self.quorum["longest"] = max(self.quorum.get("longest", 0), round(claim.ttl * 1000))
        if accepted:
            self.numbers[claim.resource] = request.ballot
        if accepted or request.fill:
            stands.token = max(stands.token, request.ballot)  # a late fill does not replace a later number
            own = self.quorum.get("seat", b"")
            return b"%d" % now if seat == own else b"%d %b" % (now, own)
        return [now, TOO_LOW, number]

    def usual(self, request: Vote, seat: Seat) -> bool:
        """Whether the vote went the shortest way: nobody is in its way, and the name has a lower number in
        this seat.

        The ttl is not noted: a client names the seat only if it knows that the node remembers one as long.
        """
        now, claim, name = self._clock(), request.claim, request.claim.resource
        marked = any(resource == name and until > now for (resource, _), (_, until) in self.marks.items())
        if claim.capacity != 1 or request.fill or marked or self._live(name, now):
            return False
        if not (self.has_number(name, seat) and self.numbers[name] < request.ballot):
            return False
        self.numbers[name] = request.ballot
        self.claims[name] = {claim.id: StandingClaim(claim, request.ballot, now)}
        return True

    def has_number(self, name: str, seat: Seat) -> bool:
        """Whether a number of this name and seat is there. Numbers exist only while the node has its vote."""
        return self.quorum.get("seat") == seat and name in self.numbers

    @staticmethod
    def _retry(live: dict[str, StandingClaim], now: int) -> int:
        first = min(live.values(), key=lambda s: s.lapses)
        left = max(1, (first.lapses - now) // 1000)
        return min(left, FOREIGN_PAUSE_MS) if first.foreign else left

    def _oldest(self, live: dict[str, StandingClaim], now: int) -> Standing:
        id = min(live, key=lambda id: (live[id].token, id))
        return self._shown({id: live[id]}, now)[0]

    def renew(self, request: Renew) -> list[Any]:
        now = self._clock()
        if not self.votes:
            return [now, NO_VOTE, int(self.quorum.get("run", self.run) == self.run)]
        longest = max((round(item.ttl * 1000) for item in request.items), default=0)
        self.quorum["longest"] = max(self.quorum.get("longest", 0), longest)
        return [now, 1, *(self._prolong(item, now) for item in request.items)]

    def _prolong(self, item: RenewalItem, now: int) -> int | str:
        stands = self._live(item.resource, now).get(item.id)
        if stands is None or stands.foreign:
            reason = self._mark(item.resource, item.id, now)
            return GONE if reason is None else reason
        if item.token and stands.token != item.token:
            return STRAY
        stands.lapses = max(stands.lapses, now + round(item.ttl * 1000) * 1000)
        if item.note is not None:
            stands.note = item.note
        if item.permits is not None:
            stands.permits = min(stands.permits, item.permits)
        return RENEWED

    def release(self, request: Release) -> int:
        now = self._clock()
        live = self._live(request.resource, now)
        stands = live.get(request.id)
        if stands is None or stands.foreign or (request.upto and stands.token > request.upto):
            return 0
        del live[request.id]
        if request.linger > 0 and stands.token:  # a claim without a number of its own is removed at once
            linger = round(request.linger * 1000)
            self.quorum["longest"] = max(self.quorum.get("longest", 0), linger)
            stands.lapses = now + linger * 1000
            live[f"lingering-{stands.token}"] = stands
        if not live:
            self.claims.pop(request.resource, None)
        return 1

    def _forget(self, now: int) -> None:
        """Merge old numbers into one, the floor. A server does it step by step."""
        if len(self.numbers) + len(self.quorum) <= MIN_NUMBERS_KEPT:
            return
        old = [name for name, number in self.numbers.items() if number < now - OLD_US]
        # If the clock of one client was ahead, the numbers that others give from then on are, too, and never
        # become old.
        ahead = sorted([(number, name) for name, number in self.numbers.items() if number >= now + OLD_US])
        for name in [*old, *[name for _, name in ahead[:-MIN_NUMBERS_KEPT]]]:
            self.quorum["floor"] = max(self.quorum.get("floor", 0), self.numbers.pop(name))

    def inspect(self, request: Inspect) -> list[Any]:
        now = self._clock()
        live = self._live(request.resource, now)
        capacity = next((s.claim.capacity for s in live.values()), 0)
        return [now, 1 if self.votes else NO_VOTE, capacity, self._shown(live, now)[: request.limit]]

    @staticmethod
    def _shown(live: dict[str, StandingClaim], now: int) -> tuple[Standing, ...]:
        shown = [
            Standing(
                *("" if s.foreign else id, s.token, s.permits, True),
                *((now - s.since) / 1e6, (s.lapses - now) / 1e6),
                *(("", "another program") if s.foreign else (s.note, s.claim.who)),
                s.foreign,
            )
            for id, s in live.items()
        ]
        return tuple(sorted(shown, key=lambda standing: (standing.token, standing.id)))

    def evict(self, request: Evict) -> list[Any]:
        now = self._clock()
        live = self._live(request.resource, now)
        met = {
            id: s for id, s in live.items() if request.id in (None, id) and (request.foreign or not s.foreign)
        }
        for id, stands in met.items():
            del live[id]
            if not stands.foreign:
                lasts = max(REMEMBERED_S, stands.claim.ttl)
                self.marks[request.resource, id] = (request.reason, now + round(lasts * 1e6))
        if not live:
            self.claims.pop(request.resource, None)
        return [now, 1 if self.votes else NO_VOTE, self._shown(met, now)]

    def checkin(self, request: CheckIn) -> list[Any]:
        now, q = self._clock(), self.quorum
        if not request.read_only and q.get("run") != self.run:
            if self.top:
                q["floor"] = self.top
            self.numbers = {}
            if not ("run" in q and q.get("durable") and self.durable):
                q["since"], q["about"] = now // 1000, "what must not be forgotten"
                q.pop("ready", None)
                if "vote" in q or "floor" in q:
                    q["begun"] = True
            q["run"] = self.run
            q.pop("vote", None)
        if not request.read_only:
            if q.get("since", 0) > now / 1000:  # its clock was set back
                q["since"] = now // 1000
            q["durable"] = self.durable
            if "since" not in q and "vote" not in q:
                q["vote"], q["seat"] = self.run, b":%d" % now
        fields = len(self.numbers) + sum(name != "seat" and value is not False for name, value in q.items())
        facts = [q.get("since", 0), self.top, q.get("longest", 0), q.get("floor", 0)]
        told = [int(self.durable), q.get("ready", 0), int(q.get("begun", False))]
        return [now, q.get("run", ""), *facts, fields, self.run, *told]

    def start(self, request: Start) -> list[Any]:
        now, q = self._clock(), self.quorum
        if q.get("run") != self.run or q.get("since") != request.since or "begun" in q:
            return [now, 0]
        if not request.begun:
            if "floor" in q:
                return [now, 0]
            q["ready"] = request.start
            return [now, 1]
        if request.start and q.get("ready") != request.start:
            return [now, 0]
        if not request.start:
            q.pop("ready", None)
        q["begun"] = True
        return [now, 1]

    def admit(self, request: Admit) -> list[Any]:
        now, q = self._clock(), self.quorum
        if q.get("run") != self.run or q.get("since") != request.since:
            return [now, 0]
        if now // 1000 < request.since + request.quarantine:
            return [now, 0]
        if request.start and not ("begun" in q and q.get("ready") == request.start):
            return [now, 0]
        if request.floor > q.get("floor", 0):
            q["floor"] = request.floor
        del q["since"]
        q.pop("ready", None)
        q["begun"] = True
        q["vote"], q["seat"] = self.run, b":%d" % now
        return [now, 1]
