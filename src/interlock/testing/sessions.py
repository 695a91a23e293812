"""The reference for session stores: the reference store, with claims that live as long as their client's session.

etcd and ZooKeeper are such stores. A client has one session. While it lives, none of its claims lapses, however long
nobody renews that claim; when it lapses, all of them are gone at once. A renewal of any claim keeps the session. So whatever
interlock ends by its own clock (a lease that nobody renews, a dead owner, `max_hold`) must be released: nothing else
removes it while the session lives.

    space = SessionSpace(runtime)
    store = SessionStore(space, runtime)

`SessionSpace.expire` ends a session as a crash of its client does, and `SessionStore.expire` that of one store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from interlock.backends.memory import TRAITS as MEMORY
from interlock.backends.memory import MemoryStore, Space, _Entry
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Gone,
    Granted,
    Renewal,
    RenewAnswer,
    Renewed,
)
from interlock.ports import IO_TIMEOUT, Runtime, Store
from interlock.record import replaced

SESSION = 60.0
"""How long a session lives unrenewed, seconds."""

TRAITS = replaced(
    MEMORY,
    backend="sessions over memory",
    lapses="session",
    survives="process",
    two_holders=(),
    max_ttl=SESSION,
    blocks=False,
    lingers=False,
)


class Session:
    """One client's session, on the server's clock; `sent` is when its client last asked to keep it, on the client's."""

    def __init__(self, lapses: float, sent: float) -> None:
        self.lapses = lapses
        self.sent = sent


class SessionEntry(_Entry):
    """A claim that lapses with its session, and never by itself."""

    __slots__ = ("session",)

    session: Session

    @property
    def lapses(self) -> float:
        return self.session.lapses

    @lapses.setter
    def lapses(self, instant: float) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ignored: whoever renews one claim keeps the session."""


class SessionStore(MemoryStore):
    """A client's view of a space, with a session of its own that begins with its first claim."""

    traits = TRAITS

    def __init__(self, space: Space, runtime: Runtime, blocking: Store | None = None) -> None:
        super().__init__(space, runtime, blocking)
        self._session: Session | None = None
        self._lost_callbacks: list[Callable[[Collection[str] | None], None]] = []
        # The keeper's view shares the session: a client has one, however it waits.
        self._origin = blocking if isinstance(blocking, SessionStore) else self

    @property
    def _current(self) -> Session:
        """The session, or a new one if it has lapsed."""
        origin, now = self._origin, self._space.now()
        if origin._session is None or origin._session.lapses <= now:
            origin._session = Session(now + SESSION, self._runtime.now())
        return origin._session

    def expire(self) -> None:
        """End the session, as the server does when its client has crashed, or was cut off for long."""
        session = self._origin._session
        if session is not None:
            with self._space.guard:
                now = self._space.now()
                session.lapses = now
                for resource in list(self._space.queues):
                    self._space.live(resource, now)  # lets others in, and wakes them
            for call in self._origin._lost_callbacks:
                call(None)

    def _entry(self, claim: Claim, token: int, now: float) -> _Entry:  # type: ignore[override]
        entry = SessionEntry.__new__(SessionEntry)
        entry.session = self._current
        entry.__init__(claim, claim.id, token, claim.permits, claim.note, now, now)  # type: ignore[misc]
        return entry

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        answer = await super().claim(claim, timeout)
        if isinstance(answer, Granted):
            return Granted(answer.token, claim.ttl, self._sent(claim.ttl))
        return answer

    def _sent(self, ttl: float) -> float:
        """From when a ttl counts that ends no later than the session does."""
        session, now = self._current, self._runtime.now()
        return min(now, session.sent + SESSION - ttl)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        await super().wait(claim, busy, timeout)
        if busy is None:
            return None
        answer = await self.claim(claim, timeout)  # a session store learns its grant by looking
        return answer if isinstance(answer, Granted) else None

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        asked = self._runtime.now()
        session = self._origin._session
        with self._space.guard:
            now = self._space.now()
            if session is not None and session.lapses > now and renewals:
                session.lapses, session.sent = now + SESSION, asked
        answers = await super().renew(renewals, timeout)
        ours: list[RenewAnswer] = []
        for renewal, answer in zip(renewals, answers, strict=True):
            if isinstance(answer, Renewed) and not self._mine(renewal):
                answer = Gone()  # another session's, under an id of ours: of an earlier life of this client
            ours.append(answer)
        return ours

    def _mine(self, renewal: Renewal) -> bool:
        entries = self._space.queues.get(renewal.resource, ())
        session = self._origin._session
        return any(entry.id == renewal.id and getattr(entry, "session", None) is session for entry in entries)

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._origin._lost_callbacks.append(call)

    def after_fork(self) -> None:
        super().after_fork()
        self._origin._session = None
