"""The simulated server: the reference store over one shared memory, and a witness of what requests do to it.

`SimulatedSessionServer` is the same with sessions: all claims of a client lapse together, and none by itself.
`SimulatedRowServer` notices lapses as a database does. The server's clocks can jump and its memory can be
wiped. The witness knows what a request may change: its own claim and nothing else. What else changes is
written into the history, for the judge of N4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._core.admission import admitted, asks_at_renewal
from interlock._core.drive import drive
from interlock._core.runtime import Runtime
from interlock._support.record import replaced
from interlock.backends.memory import TRAITS, MemoryStore, Space, _Row
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT
from interlock.testing.history import History
from interlock.testing.sessions import Session, SessionView
from interlock.testing.world import STEP_S, SimulatedMutex, World

BORN = 1_700_000_000.0  # what the server's wall clock shows when the world begins

Seen = dict[int, tuple[str, float]]  # by token: claim id, when it lapses


class PushingSpace(Space):
    """Remembers whom it let in: a server that pushes the grant to the waiter with the wake-up."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.let_in: dict[str, int] = {}  # claim id to token

    def settle(self, resource: str, queue: list[_Row], now: float) -> None:
        waiting = [row for row in queue if row.admitted_at is None]
        super().settle(resource, queue, now)
        for row in waiting:
            if row.admitted_at is not None:
                self.let_in[row.id] = row.token


class RowSpace(PushingSpace):
    """Sweeps no claims: what has lapsed stands until somebody asks."""

    def forget_old(self, now: float) -> None:
        """Do nothing: a run is too short for old evictions and registers to matter."""


class SimulatedServer:
    """One shared memory with its own clocks.

    `pushes`: a waiter is told its token together with the wake-up.
    """

    space_type: type[PushingSpace] = PushingSpace

    def __init__(self, world: World, history: History, *, drift: float = 0.0, pushes: bool = False) -> None:
        self.world = world
        self.history = history
        self.pushes = pushes
        self.decides_here = False  # clients stand beside it, as on an embedded store: see `Store.claim_idle`
        self.fair = False  # a waiter must keep its place: nothing happens that could excuse its loss
        self.first: dict[str, int] = {}  # claim id to the token it entered with
        self._rate = 1.0 + drift
        self._jumped = 0.0
        self._wall_jumped = 0.0
        self.space = self.space_type(self.now, SimulatedMutex(world), self.wall)

    def now(self) -> float:
        """The clock on which claims lapse."""
        return self.world.time * self._rate + self._jumped

    def true_time(self, instant: float) -> float:
        """The world's time at which that clock shows `instant`."""
        return (instant - self._jumped) / self._rate

    def wall(self) -> int:
        """The clock that tokens are floored by, in microseconds."""
        return int((BORN + self.world.time + self._wall_jumped) * 1e6)

    @property
    def jumped(self) -> bool:
        return self._jumped != 0.0

    def jump(self, seconds: float) -> None:
        """The clock on which claims lapse jumps: leases may lapse that their holders trust."""
        self._jumped += seconds

    def jump_wall(self, seconds: float) -> None:
        """The wall clock jumps, forwards or backwards: tokens must rise all the same."""
        self._wall_jumped += seconds

    def forget(self) -> None:
        """A restart without persistence: claims, registers and counters are gone, the clock is not."""
        space = self.space
        space.last = 0
        space.evicted.clear()
        for name in list(space.queues):
            del space.queues[name]
        space.registers.clear()
        for topic in list(space.waiters.topics):  # connections broke: every waiter asks again
            space.ring(topic)

    def store(self, runtime: Runtime) -> WitnessedStore:
        """A client's view of the memory."""
        return WitnessedStore(self, runtime)


class WitnessedStore(MemoryStore):
    """The reference store, watched."""

    def __init__(self, server: SimulatedServer, runtime: Runtime) -> None:
        super().__init__(server.space, runtime)
        self._server = server
        if server.decides_here:
            self.decides_here = True
            self.traits = replaced(self.traits, blocks=False)  # or most claims would stand in a cohort first

    def claim_idle(self, claim: Claim) -> Granted | None:
        space = self._space
        self._server.world.time += STEP_S  # a statement takes time, too: no two grants are of one instant
        if space.live(claim.resource, space.now()) or claim.id in space.evicted:
            return None
        answer = drive(self.claim(claim), nested=True)
        return answer if isinstance(answer, Granted) else None

    def release_alone(self, resource: str, id: str) -> bool:
        standing = [row.id for row in self._space.live(resource, self._space.now())]
        return standing == [id] and drive(self.release(resource, id), nested=True)

    def _see(self, resource: str) -> Seen:
        now = self._space.now()
        queue = self._space.queues.get(resource, ())
        return {row.token: (row.id, row.lapses) for row in queue if row.lapses > now}

    def _saw(self, what: str, ids: set[str], resource: str, before: Seen) -> None:
        after = self._see(resource)
        now = self._space.now()
        for token in before.keys() | after.keys():
            old, new = before.get(token), after.get(token)
            if old == new:
                continue
            if old is None and new is not None and what != "claim":
                self._report(resource, new[0], f"a {what} created a claim")
            if old is not None and old[0] not in ids and old[1] > now:
                self._report(resource, old[0], f"a {what} of {sorted(ids)} changed it from {old} to {new}")
            if what == "renew" and old is not None and (new is None or new[1] < old[1]) and old[1] > now:
                self._report(resource, old[0], f"a renewal moved its lapse nearer: {old} to {new}")
        self._check_order(resource, now)

    def _check_order(self, resource: str, now: float) -> None:
        """The rule itself: those inside are the first in the queue, and they fit."""
        queue = [row for row in self._space.queues.get(resource, ()) if row.lapses > now]
        inside = [row for row in queue if row.admitted_at is not None]
        if inside and admitted([row.permits for row in inside], inside[0].claim.capacity) != len(inside):
            self._report(resource, inside[-1].id, "more are admitted than the capacity allows")
        if inside != queue[: len(inside)]:
            self._report(resource, inside[-1].id, "it was admitted past one who waits longer")

    def _report(self, resource: str, id: str, error: str) -> None:
        self._server.history.add("server", "touch", "fail", attempt=id, resource=resource, error=error)

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        before = self._see(claim.resource)
        answer = await super().claim(claim, timeout)
        self._saw("claim", {claim.id}, claim.resource, before)
        if isinstance(answer, Granted) and self._server.fair:
            first = self._server.first.pop(claim.id, answer.token)
            if first != answer.token:
                self._report(
                    claim.resource, claim.id, f"lost its place: entered as {first}, granted {answer.token}"
                )
        if isinstance(answer, Busy):
            for token, (id, _) in self._see(claim.resource).items():
                if id == claim.id:
                    self._server.first.setdefault(id, token)
            self._server.space.let_in.pop(claim.id, None)  # it stands anew: what it was told before is void
        if isinstance(answer, Granted) and self._see(claim.resource).get(answer.token, ("",))[0] != claim.id:
            self._report(claim.resource, claim.id, f"was granted token {answer.token}, which does not stand")
        return answer

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        await super().wait(claim, busy, timeout)
        token = self._server.space.let_in.get(claim.id)
        # Told however late the waiter hears it: it may have lapsed by then.
        return (
            None
            if token is None or busy is None or not self._server.pushes
            else Granted(token, claim.place_ttl)
        )

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        before = {renewal.resource: self._see(renewal.resource) for renewal in renewals}
        answers = await super().renew(renewals, timeout)
        for resource, seen in before.items():
            ids = {renewal.id for renewal in renewals if renewal.resource == resource}
            self._saw("renew", ids, resource, seen)
        return answers

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        before = self._see(resource)
        stood = await super().release(resource, id, linger, timeout)
        self._saw("release", {id}, resource, before)
        return stood


class SimulatedRowServer(SimulatedServer):
    """A server of rows, as a database is: it notices a lapse only when somebody asks, and the renewals of
    places look for that.
    """

    space_type = RowSpace

    def store(self, runtime: Runtime) -> WitnessedStore:
        return WitnessedRows(self, runtime)


class WitnessedRows(WitnessedStore):
    """The requests of one client to a server of rows, watched."""

    traits = replaced(TRAITS, renewals_wake=True)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        if busy is None:
            return await super().wait(claim, busy, timeout)

        def left() -> float:
            queue = self._space.queues.get(claim.resource, ())
            row = next((row for row in queue if row.id == claim.id), None)
            return 0.0 if row is None or row.admitted_at is not None else timeout

        await self._listen(claim.id, left, timeout)
        token = self._server.space.let_in.get(claim.id)
        return None if token is None or not self._server.pushes else Granted(token, claim.place_ttl)

    def _renew(self, renewal: Renewal, now: float) -> RenewAnswer:
        queue = self._space.queues.get(renewal.resource, [])
        live = [row for row in queue if row.lapses > now]
        place = next((place for place, row in enumerate(queue) if row.id == renewal.id), None)
        if renewal.id in self._space.evicted or renewal.permits is not None or renewal.note is not None:
            return super()._renew(renewal, now)
        if place is None or queue[place] not in live:
            self._space.ring(renewal.id)  # its place has lapsed: it asks
            return Gone()
        if queue[place].admitted_at is None and not renewal.waiting:
            return Gone()
        queue[place].lapses = max(queue[place].lapses, now + renewal.ttl)
        if renewal.waiting and self._asks(queue, place, now, renewal.ttl):
            self._space.ring(renewal.id)
        return Renewed(renewal.ttl)

    @staticmethod
    def _asks(queue: Sequence[_Row], place: int, now: float, place_ttl: float) -> bool:
        let_in = sum(row.admitted_at is not None for row in queue)
        if queue[place].admitted_at is not None:
            return True
        ttls = [row.claim.place_ttl for row in queue]
        lapses_in, permits = [row.lapses - now for row in queue], [row.permits for row in queue]
        return asks_at_renewal(
            permits, lapses_in, ttls, place, queue[place].claim.capacity, place_ttl, let_in
        )


class SimulatedSessionServer(SimulatedServer):
    """A server whose claims live as long as their client's session."""

    timeout = 1.0  # seconds for which a session lives unless it is kept

    def __init__(self, world: World, history: History, *, drift: float = 0.0) -> None:
        super().__init__(world, history, drift=drift)
        self._sessions: list[Session] = []

    def store(self, runtime: Runtime) -> WitnessedStore:
        return self.view(runtime, Session(self.timeout))

    def view(self, runtime: Runtime, session: Session) -> WitnessedStore:
        """The server's side of one session."""
        self._sessions.append(session)
        return WitnessedSession(self, runtime, session)

    def ping(self, session: Session | None) -> None:
        """Keep a session that lives, without its client's store knowing of it."""
        if session is not None and session.alive(self.now()):
            session.keep(self.now())

    def forget(self) -> None:
        for session in self._sessions:
            session.lapses = float("-inf")
        super().forget()


class WitnessedSession(WitnessedStore, SessionView):
    """The requests of one session, watched.

    The network may deliver a claim once more after its release. Such a copy would stand for as long as the
    session lives, so a session store must refuse it; this one remembers what was released.
    """

    def __init__(self, server: SimulatedSessionServer, runtime: Runtime, session: Session) -> None:
        SessionView.__init__(self, server.space, runtime, session)
        self._server = server
        self._released: set[str] = set()  # for as long as the session: it has one view

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        return Gone() if claim.id in self._released else await super().claim(claim, timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        self._released.add(id)
        return await super().release(resource, id, linger, timeout)

    def _see(self, resource: str) -> Seen:
        # Without the lapse: one renewal moves that of all claims of its session.
        return {token: (id, float("inf")) for token, (id, _) in super()._see(resource).items()}
