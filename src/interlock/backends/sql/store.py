"""The `Store` interface over the steps of a database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.defaults import StoreDefaults
from interlock.backends.kit.polling import poll, until_changed
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql import rows, steps
from interlock.backends.sql.dialect import Rows
from interlock.backends.sql.keeper import KeeperConnection
from interlock.backends.sql.runner import Runner
from interlock.backends.sql.sharing import ListenerShare
from interlock.backends.sql.sweep import SweepCursor
from interlock.errors import InterlockError, StoreUnavailable, Unreached
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)
from interlock.ports import IO_TIMEOUT, Store

BATCH = 100  # renewals in one step: more would keep locks on too many rows for too long
REMEMBERED = 60.0  # seconds for which an eviction or a deleted register is remembered at least
UNANSWERED = 4096  # ids kept of claims for which a request was not answered
WATCHED = 60.0  # seconds for which changes ring the bell of a watcher
WATCH_AGAIN = 30.0  # a watch that will end sooner is renewed
SWEEPING = 1.0  # seconds that a caller waits at most for the sweep that it happens to do


class SharedState:
    """What all sides of one client know: the callers', the keeper's, and the blocking twin of an asyncio store."""

    def __init__(self) -> None:
        self.places: dict[
            str, tuple[int, int]
        ] = {}  # waiting claims: under which subscription they asked, and their token
        self.unanswered: dict[
            str, None
        ] = {}  # claims with a request that was not answered and may arrive late
        self.bells: dict[
            str, tuple[str, float]
        ] = {}  # by topic: the bell that its changes ring, and until when
        self.sweep = SweepCursor()
        self.doubt_callbacks: list[Callable[[], None]] = []

    def clear(self) -> None:
        """In a forked child."""
        self.places.clear()
        self.unanswered.clear()
        self.bells.clear()


class SqlStore(StoreDefaults):
    """Claims and registers in the tables of a database, for programs anywhere on the network."""

    def __init__(
        self,
        traits: Traits,
        place: str,
        runner: Runner,
        share: ListenerShare,
        runtime: WaitRuntime,
        state: SharedState,
        keeper: KeeperConnection,
    ) -> None:
        self._traits = traits
        self._place = place
        self._runner = runner
        self._share = share
        self._listener = share.listener
        self._runtime = runtime
        self._state = state
        self._keeper = keeper
        self._twin: SqlStore | None = None  # the blocking side of an asyncio store
        self._make_keeper_side: Callable[[], SqlStore] | None = None  # makes the keeper's own side, once
        self._keeper_side: SqlStore | None = None
        self.claim_table: str | None = (
            None  # its quoted name: guards lock rows there, in transactions of the user
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place}>"

    @property
    def traits(self) -> Traits:
        return self._traits

    async def _run(self, step: str, args: Sequence[object], timeout: float) -> Rows:
        return await self._runner.run(step, args, self._runtime.now() + timeout)

    # ---- claims ------------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        listener, state = self._listener, self._state
        bell, generation = listener.bell, listener.generation  # before the request: see `wait`
        # fmt: off
        args = (
            claim.resource, claim.id, claim.ttl, claim.permits, claim.capacity, claim.queued, claim.place_ttl,
            claim.block, bell, claim.note, claim.who,
        )
        # fmt: on
        try:
            (row,) = await self._run(steps.CLAIM, args, timeout)
        except BaseException as error:
            self._leave_unanswered(claim.id, error)
            raise
        if row[5]:
            listener.deliver_all(row[5])
        answer, place = rows.claim_answer(claim, row)
        if place is not None:
            state.places[claim.id] = (generation, place)
        return answer

    def _leave_unanswered(self, id: str, error: BaseException) -> None:
        """Remember a claim whose request may still arrive: after its release it must not enter any more."""
        if not isinstance(error, Unreached):
            unanswered = self._state.unanswered
            if len(unanswered) >= UNANSWERED:
                unanswered.clear()
            unanswered[id] = None

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        listener, state = self._listener, self._state
        late = bool(state.unanswered) and id in state.unanswered
        try:
            ((stood, messages),) = await self._run(
                steps.RELEASE, (resource, id, linger, listener.bell, late), timeout
            )
        except BaseException:
            listener.wake("w" + resource)  # the messages for waiters of ours are lost: they ask again
            raise
        if messages:
            listener.deliver_all(messages)
        if late:
            state.unanswered.pop(id, None)
        if state.places:
            state.places.pop(id, None)
        listener.removed(id)
        await self._sweep_if_due(timeout)
        return bool(stood)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        deadline = Deadline(self._runtime.now, timeout)
        answers: list[RenewAnswer] = []
        for start in range(0, len(renewals), BATCH):
            batch = renewals[start : start + BATCH]
            items = [(r.resource, r.id, r.ttl, r.note, r.permits) for r in batch]
            found = await self._runner.run(steps.RENEW, (items, self._listener.bell), deadline.at)
            for renewal, row in zip(batch, found, strict=True):
                answers.append(rows.renew_answer(renewal, row))
                if row[2]:
                    self._listener.deliver_all(row[2])
                if row[0] != "r":
                    self._listener.wake("c" + renewal.id)
        await self._sweep_if_due(deadline.left())
        return answers

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        found = await self._run(steps.EVICT, (resource, id, reason, REMEMBERED), IO_TIMEOUT)
        met = rows.evicted(found)
        for standing in met:
            self._listener.wake("c" + standing.id)
        return met

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return rows.queue(resource, await self._run(steps.QUEUE, (resource, limit), timeout))

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return [name for (name,) in await self._run(steps.NAMES, (prefix, after, limit), IO_TIMEOUT)]

    async def _sweep_if_due(self, timeout: float) -> None:
        """Remove a slice of what has lapsed; if that fails, the caller that happened to do it does not notice."""
        sweep = self._state.sweep
        if sweep.due(self._runtime.now()):
            with suppress(InterlockError):
                for row in await self._run(steps.SWEEP, sweep.arguments(), min(timeout, SWEEPING)):
                    sweep.swept(row)

    # ---- waiting -----------------------------------------------------------------------

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        listener, signal, deadline = (
            self._listener,
            self._runtime.signal(),
            Deadline(self._runtime.now, timeout),
        )
        topics = ("c" + claim.id, "w" + claim.resource)
        listener.listen(signal, *topics)
        try:
            if listener.polling:
                return await self._poll(claim, busy, deadline)
            if not listener.subscribed(signal):
                await self._runtime.wait(signal, timeout)
                return None  # what was rung before the subscription listened is lost: the caller asks again
            generation, place = self._state.places.get(claim.id, (0, 0))
            if busy is None:
                if not await self._stands(claim, deadline):
                    return None
            elif generation != listener.generation:
                return None  # it asked before this subscription listened: the caller asks again
            if not listener.has_message(claim.id):
                await self._runtime.wait(signal, deadline.left())
        finally:
            listener.forget(signal, *topics)
        token = listener.take_token(claim.id)
        # A grant for an earlier place, which lapsed while this process was stopped, must not count for this place.
        return Granted(token, claim.place_ttl) if token and token == place and busy is not None else None

    async def _stands(self, claim: Claim, deadline: Deadline) -> bool:
        """Whether a holder stands and nothing has happened to it; our bell is in its row then."""
        try:
            found = await self._find(claim, deadline.for_request())
        except StoreUnavailable:
            if not deadline.passed():
                raise
            return False  # the time is up, which is an answer too: the caller asks again
        return bool(found)

    async def _find(self, claim: Claim, timeout: float) -> Rows:
        return await self._run(steps.FIND, (claim.resource, claim.id, self._listener.bell), timeout)

    async def _poll(self, claim: Claim, busy: Busy | None, deadline: Deadline) -> Granted | None:
        """Look at the row of the claim again and again, until something has happened to it."""
        granted: list[Granted] = []
        _, place = self._state.places.get(claim.id, (0, 0))

        async def changed(within: float) -> bool:
            if self._listener.has_message(claim.id):
                return True
            for state, rung, token, lapses_in in await self._find(claim, within):
                if busy is not None and state == steps.IN and token == place:
                    granted.append(Granted(token, min(lapses_in, claim.place_ttl)))
                    return True
                return (busy is not None and bool(rung)) or (busy is not None and state == steps.IN)
            return True

        retry = deadline.left() if busy is None else min(deadline.left(), max(0.001, busy.retry_after))
        await poll(self._runtime, changed, retry)
        self._listener.take_token(claim.id)
        return granted[0] if granted else None

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        before = outline(seen)

        async def changed(within: float) -> bool:
            return outline(await self.inspect(resource, within)) != before

        if self._listener.polling:
            await until_changed(self._runtime, self.inspect, seen, timeout)
            return
        first_lapse = min((standing.lapses_in for standing in seen.standings), default=timeout)
        await self._watch("q", resource, changed, min(timeout, first_lapse))

    async def _watch(
        self, kind: str, name: str, changed: Callable[[float], Awaitable[bool]], timeout: float
    ) -> None:
        listener, deadline, signal = (
            self._listener,
            Deadline(self._runtime.now, timeout),
            self._runtime.signal(),
        )
        listener.listen(signal, kind + name)
        try:
            if not listener.subscribed(signal):
                await self._runtime.wait(signal, timeout)
                return  # changes from before the subscription listened rang nobody: the caller looks again
            await self._ring_at_changes(kind, name, deadline)
            if not await changed(deadline.for_request()):
                await self._runtime.wait(signal, min(deadline.left(), WATCH_AGAIN))
        except StoreUnavailable:
            if not deadline.passed():
                raise  # otherwise the time is up, which is an answer too
        finally:
            listener.forget(signal, kind + name)

    async def _ring_at_changes(self, kind: str, name: str, deadline: Deadline) -> None:
        """See to it that our bell is rung at changes, for long enough."""
        bell, now, bells = self._listener.bell, self._runtime.now(), self._state.bells
        known, until = bells.get(kind + name, ("", 0.0))
        if bell and (known != bell or until < now + WATCH_AGAIN):
            await self._run(steps.WATCH, (kind, name, bell, WATCHED), deadline.for_request())
            if len(bells) > 1000:
                for topic in [topic for topic, (_, till) in bells.items() if till <= now]:
                    bells.pop(topic, None)
            bells[kind + name] = (bell, now + WATCHED)

    # ---- registers ---------------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        for value, version in await self._run(steps.READ, (name,), timeout):
            return Versioned(value, version)
        return Versioned(None, 0)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        args = (name, version, value, id, self._listener.bell, REMEMBERED)
        try:
            found = await self._run(steps.WRITE, args, timeout)
        finally:
            self._listener.wake("r" + name)
        await self._sweep_if_due(timeout)
        for written, number in found:
            return Versioned(written, number)
        return None

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        async def changed(within: float) -> bool:
            return (await self.read(name, within)).version != version

        if self._listener.polling:
            await poll(self._runtime, changed, timeout)
        else:
            await self._watch("r", name, changed, timeout)

    # ---- housekeeping ------------------------------------------------------------------

    def on_doubt(self, call: Callable[[], None]) -> None:
        self._state.doubt_callbacks.append(call)

    def inside(self) -> bool:
        return self._runner.source.inside() or self._listener.inside()

    def blocking(self) -> Store:
        return self if self._twin is None else self._twin

    def for_keeper(self) -> Store:
        if self._make_keeper_side is not None:
            make, self._make_keeper_side = self._make_keeper_side, None
            self._keeper_side = make()
        return self if self._keeper_side is None else self._keeper_side

    def after_fork(self) -> None:
        self._state.clear()
        self._keeper.after_fork()
        self._runner.source.after_fork()
        self._listener.after_fork()  # the twin does it a second time, which is harmless: nobody waits yet
        if self._keeper_side is not None:
            self._keeper_side._runner.source.after_fork()

    async def close(self) -> None:
        self._share.leave()
        await self._runner.source.close()
        if self._keeper_side is not None and self._keeper_side is not self:
            await self._keeper_side._runner.source.close()
        if self._twin is not None:
            await self._twin.close()
