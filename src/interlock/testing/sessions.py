"""The reference for session stores: the reference store, with claims that live as long as their client's
session.

etcd and ZooKeeper are such stores. A client has one session. While the session lives, none of its claims
lapses, however long nobody renews that claim; when it lapses, all of them are gone at once. So whatever
interlock ends by its own clock (a lease that nobody renews, a dead owner, `max_hold`) must be released:
nothing else removes it while the session lives.

    space = Space(runtime.now, runtime.mutex())
    store = SessionStore(space, runtime)

The model has two halves, because in a simulation a network lies between them. A `SessionView` is the
server's: what the requests of one session do. `SessionStore` is the client's: it begins a session, keeps it,
learns that it has lapsed, and knows from when a ttl counts. A request to keep the session is `renew([])`;
every other renewal keeps it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from interlock._core.runtime import Runtime
from interlock._support.record import replaced
from interlock.backends.memory import TRAITS as MEMORY
from interlock.backends.memory import MemoryStore, Space, _Row
from interlock.errors import StoreUnavailable
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Gone,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Renewed,
    Standing,
    Versioned,
)
from interlock.store import IO_TIMEOUT, Store, StoreDefaults

SESSION_TIMEOUT_S = 60.0
"""How long a session lives unless it is kept, seconds."""

KEPT_PART = 3 / 4
"""The least part of a claim's ttl that the session must still live when the claim is sent; otherwise it is
kept first.
"""

NEVER = float("-inf")

TRAITS = replaced(
    MEMORY,
    backend="sessions over memory",
    lapses="session",
    survives="process",
    two_holders=("an operator evicts the holder",),
    max_ttl=SESSION_TIMEOUT_S,
    blocks=False,
    lingers=False,
)


class SessionLapsed(Exception):
    """The server's answer to a request of a session that has lapsed."""


# ---- the server's half -----------------------------------------------------------------


class Session:
    """One client's session, by the server's clock. It begins when it is kept for the first time."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.lapses: float | None = None  # None: it has not begun

    def alive(self, now: float) -> bool:
        return self.lapses is not None and self.lapses > now

    def keep(self, now: float) -> None:
        """Begin the session, or let it live for another timeout; `SessionLapsed` if that is too late."""
        if self.lapses is not None and self.lapses <= now:
            raise SessionLapsed
        self.lapses = now + self.timeout


class SessionRow(_Row):
    """A claim that lapses with its session, and never by itself."""

    __slots__ = ("session",)

    session: Session

    @property
    def lapses(self) -> float:
        return NEVER if self.session.lapses is None else self.session.lapses

    @lapses.setter
    def lapses(self, instant: float) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ignored: whoever renews one claim keeps the session."""


class SessionView(MemoryStore):
    """The server's side of one session: its requests change the shared space."""

    traits = TRAITS

    def __init__(self, space: Space, runtime: Runtime, session: Session) -> None:
        super().__init__(space, runtime)
        self.session = session

    def _row(self, claim: Claim, token: int, now: float) -> _Row:  # type: ignore[override]
        row = SessionRow.__new__(SessionRow)
        row.session = self.session
        row.__init__(claim, claim.id, token, claim.permits, claim.note, now, now)  # type: ignore[misc]
        return row

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        if not self.session.alive(self._space.now()):
            raise SessionLapsed
        return await super().claim(claim, timeout)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        with self._space.alone():
            self.session.keep(self._space.now())
        answers = await super().renew(renewals, timeout)
        return [
            answer if self._ours(renewal) or not isinstance(answer, Renewed) else Gone()
            for renewal, answer in zip(renewals, answers, strict=True)
        ]

    def _ours(self, renewal: Renewal) -> bool:
        """Whether the claim stands in this session, and not in another one of the same client."""
        rows = self._space.queues.get(renewal.resource, ())
        return any(row.id == renewal.id and getattr(row, "session", None) is self.session for row in rows)


# ---- the client's half -----------------------------------------------------------------


class KnownSession:
    """A client's knowledge of its session; its stores for tasks and for plain threads share it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.kept = (
            NEVER  # when the last request that kept it, and was answered, was sent; on the client's clock
        )
        self.ids: set[str] = set()  # of claims that may stand in it
        self.on_lost: list[Callable[[Collection[str] | None], None]] = []

    def renew(self, session: Session, asked: float) -> None:
        """Note that the session was kept by a request that was sent at `asked`."""
        if self.session is session:
            self.kept = max(self.kept, asked)

    def begin(self, timeout: float) -> Session:
        self.session, self.kept, self.ids = Session(timeout), NEVER, set()
        return self.session

    def lapse(self, session: Session) -> None:
        """Report, once, that all claims of this session are lost."""
        if self.session is session:
            self.session, lost = None, frozenset(self.ids)
            for call in self.on_lost:
                call(lost)


class SessionStore(StoreDefaults):
    """A client's store, with a session of its own that begins with the first claim.

    `connect` gives the way to the server for one session; without it there is nothing in between.
    """

    def __init__(
        self,
        space: Space,
        runtime: Runtime,
        blocking: Store | None = None,
        *,
        timeout: float = SESSION_TIMEOUT_S,
        connect: Callable[[Session], Store] | None = None,
    ) -> None:
        self.traits = replaced(TRAITS, max_ttl=timeout)
        self._space = space
        self._runtime = runtime
        self._blocking = blocking
        self._timeout = timeout
        self._connect: Callable[[Session], Store] = connect or self._directly
        self.known: KnownSession = blocking.known if isinstance(blocking, SessionStore) else KnownSession()
        self._plain = self._connect(Session(timeout))  # for requests that need no session
        self._way: tuple[Session, Store] | None = None

    def _directly(self, session: Session) -> Store:
        return SessionView(self._space, self._runtime, session)

    def _server(self, session: Session | None) -> Store:
        """The way to the server for requests of this session."""
        if session is None:
            return self._plain
        if self._way is None or self._way[0] is not session:
            self._way = session, self._connect(session)
        return self._way[1]

    def expire(self) -> None:
        """End the session, as the server does when its client has crashed, or was cut off for long."""
        session = self.known.session
        if session is not None:
            with self._space.alone():
                now = self._space.now()
                session.lapses = now
                for resource in list(self._space.queues):
                    self._space.live(resource, now)  # lets others in, and wakes them
            self.known.lapse(session)

    # ---- claims ------------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        until = self._runtime.now() + timeout
        for _ in range(2):
            session = self.known.session or self.known.begin(self._timeout)
            try:
                return await self._claim(session, claim, until)
            except SessionLapsed:
                self.known.lapse(session)  # and try in a new one
        raise StoreUnavailable("the session lapsed twice in a row")

    async def _claim(self, session: Session, claim: Claim, until: float) -> ClaimAnswer:
        server, ttl = self._server(session), min(claim.ttl, self._timeout)
        if self._runtime.now() > self.known.kept + self._timeout - KEPT_PART * ttl:
            asked = self._runtime.now()
            await server.renew([], max(0.01, until - asked))
            self.known.renew(session, asked)
        self.known.ids.add(claim.id)
        asked = self._runtime.now()
        answer = await server.claim(claim, max(0.01, until - asked))
        if self.known.session is not session:
            raise SessionLapsed  # another caller has found out meanwhile
        if isinstance(answer, Granted):
            # The ttl counts from an instant at which it ends no later than the session does.
            return Granted(answer.token, ttl, min(asked, self.known.kept + self._timeout - ttl))
        return answer

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        until = self._runtime.now() + timeout
        await self._server(self.known.session).wait(claim, busy, timeout)
        left = until - self._runtime.now()
        if busy is None or left <= 0.01:
            return None
        answer = await self.claim(claim, left)  # a session store learns its grant by looking
        return answer if isinstance(answer, Granted) else None

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        session, asked = self.known.session, self._runtime.now()
        if session is None:
            return [Gone() for _ in renewals]
        try:
            answers = await self._server(session).renew(renewals, timeout)
        except SessionLapsed:
            self.known.lapse(session)
            return [Gone() for _ in renewals]
        self.known.renew(session, asked)
        return [
            Renewed(min(answer.ttl, self._timeout), asked) if isinstance(answer, Renewed) else answer
            for answer in answers
        ]

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        stood = await self._server(self.known.session).release(resource, id, linger, timeout)
        self.known.ids.discard(id)
        return stood

    # ---- what needs no session ---------------------------------------------------------

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await self._plain.inspect(resource, timeout, limit=limit)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._plain.scan(prefix, after, limit)

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        return await self._plain.evict(resource, id, reason, foreign=foreign, no_expiry=no_expiry)

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        await self._plain.watch(resource, seen, timeout)

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return await self._plain.read(name, timeout)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        return await self._plain.compare_and_set(name, version, value, id, timeout)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        await self._plain.watch_register(name, version, timeout)

    # ---- housekeeping ------------------------------------------------------------------

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self.known.on_lost.append(call)

    def inside(self) -> bool:
        return self._plain.inside()

    def blocking(self) -> Store:
        return self if self._blocking is None else self._blocking

    def after_fork(self) -> None:
        """The session is the parent's; the child begins one of its own."""
        self._plain.after_fork()
        self.known.session = None

    async def close(self) -> None:
        """Wake everybody that waits.

        The session goes on until it lapses, for it may belong to the program.
        """
        await self._plain.close()
        if self._way is not None:
            await self._way[1].close()
