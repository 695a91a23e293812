"""The store on a database server: connections, requests whose answer is lost, a subscription to wake-ups,
and a side for the keeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.own_claims import OwnClaims
from interlock.backends.kit.polling import poll
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.kit.sides import Sides
from interlock.backends.sql import rows, steps
from interlock.backends.sql.dialect import Dialect
from interlock.backends.sql.keeper import KeeperConnection
from interlock.backends.sql.requester import Requester
from interlock.backends.sql.sharing import ListenerShare
from interlock.backends.sql.steps import Rows
from interlock.backends.sql.store import SharedState, SqlStore
from interlock.backends.sql.sweep import SweepCursor
from interlock.backends.sql.waking import ChangeRead, Waiter
from interlock.model import Busy, Claim, ClaimAnswer, Examination, Gone, Granted, RenewAnswer, Traits
from interlock.store import IO_TIMEOUT, Store

NO_PLACE = (0, 0)


class ServerState(SharedState):
    """The knowledge of its requests that all sides of one client share."""

    def __init__(self) -> None:
        super().__init__(SweepCursor())
        # Among its places are also claims that may share their resource with many.
        self.own_claims = OwnClaims()
        self.doubt_callbacks: list[Callable[[], None]] = []

    def clear(self) -> None:
        super().clear()
        self.own_claims.clear()


class ServerStore(SqlStore):
    """Claims and registers in the tables of a database server, for programs anywhere on the network."""

    def __init__(
        self,
        dialect: Dialect,
        requester: Requester,
        share: ListenerShare,
        runtime: WaitRuntime,
        state: ServerState,
        keeper: KeeperConnection,
    ) -> None:
        super().__init__(dialect.label, runtime.now, runtime, share.listener, state)
        self._dialect = dialect
        self._requester = requester
        self._share = share
        self._listener = share.listener
        self._state = state
        self._keeper = keeper
        self.sides: Sides[ServerStore] = Sides()
        # Its quoted name: guards lock rows there, in transactions of the user.
        self.claim_table: str | None = dialect.claim_table

    @property
    def traits(self) -> Traits:
        return self._dialect.traits

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        examiner, dialect, facts = Examiner(self.now, timeout), self._dialect, dict[str, str]()
        for question in dialect.questions:
            ask = partial(self._facts, question)
            found = await examiner.answer(ask)
            if found is None and not facts:
                break  # the server is out of reach, and each further question would wait for it as long
            facts.update(found or {})
        if facts:
            dialect.check(facts, examiner)
        return examiner.result()

    async def _facts(self, question: str, timeout: float) -> dict[str, str]:
        found = await self._requester.run(steps.EXAMINE, (question,), self.now() + timeout)
        return {str(name).lower(): str(value) for name, value in found}

    async def _run(self, step: str, args: Sequence[object], until: float) -> Rows:
        found = await self._requester.run(step, args, until)
        messages = steps.MESSAGES.get(step)
        if messages is not None:
            for row in found:
                if row[messages]:
                    self._listener.deliver_all(row[messages])
        return found

    # ---- claims ------------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        listener, own = self._listener, self._state.own_claims
        bell, generation = listener.bell, listener.generation  # before the request: see `wait`
        if own.places and claim.id in own.places:
            listener.take_token(claim.id)  # what it was told to ask about, it asks now
        try:
            (row,) = await self._run(steps.CLAIM, rows.claim_arguments(claim, bell), self.now() + timeout)
        except BaseException as error:
            own.leave_unanswered(claim.id, error)
            raise
        answer, place_token = rows.claim_answer(claim, row)
        if place_token is not None:
            own.places[claim.id] = (generation, place_token)
        elif type(answer) is Granted and (claim.capacity > 1 or claim.id in own.places):
            own.places[claim.id] = (generation, answer.token)
        return answer

    def _token(self, id: str) -> int:
        return self._state.own_claims.places.get(id, NO_PLACE)[1]

    def _on_not_renewed(self, id: str, answer: RenewAnswer) -> None:
        if type(answer) is Gone:
            self._state.own_claims.places.pop(id, None)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        listener, own = self._listener, self._state.own_claims
        late, until = bool(own.unanswered) and id in own.unanswered, self.now() + timeout
        try:
            args = (resource, id, linger, listener.bell, late, self._token(id) if own.places else 0)
            ((stood, _),) = await self._run(steps.RELEASE, args, until)
        except BaseException:
            listener.wake("w" + resource)  # the messages for waiters of ours are lost: they ask again
            raise
        if late or own.places:
            own.forget(id)
        listener.removed(id)
        if self._sweep.due(now := self.now()):
            await self._sweep_slice(now, until)
        return bool(stood)

    # ---- waiting -----------------------------------------------------------------------

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        listener, deadline = self._listener, Deadline(self.now, timeout)
        generation, place_token = self._state.own_claims.places.get(claim.id, NO_PLACE)
        if listener.polling:
            return await self._poll(claim, busy, place_token, deadline)

        async def unchanged() -> bool:
            if busy is None:
                stands = await self._unchanged(claim, busy, deadline.of_request())
            else:
                stands = generation == listener.generation  # else it asked before this subscription listened
            return stands and not listener.has_message(claim.id)

        waiter = Waiter(self._runtime.signal(), "c" + claim.id, "w" + claim.resource)
        await self._listen(waiter, unchanged, deadline)
        if busy is None:
            listener.take_token(claim.id)
            return None
        token = listener.take_grant(claim.id)
        # A grant for an earlier place, which lapsed while this process was stopped, must not count for this
        # place.
        if not token or token != place_token:
            return None
        # The message only wakes: any role of the database may send one, so the row decides.
        args = (claim.resource, claim.id, "", place_token)
        return self._grant(claim, place_token, await self._run(steps.FIND, args, deadline.of_request()))

    @staticmethod
    def _grant(claim: Claim, place_token: int, found: Rows) -> Granted | None:
        """The grant, if the rows of `steps.FIND` say that the claim is in."""
        for state, _, token, lapses_in in found:
            if state == steps.IN and token == place_token:
                return Granted(token, min(lapses_in, claim.place_ttl))
        return None

    async def _poll(
        self, claim: Claim, busy: Busy | None, place_token: int, deadline: Deadline
    ) -> Granted | None:
        """Read the row of the claim again and again, until something has happened to it."""
        granted: list[Granted] = []

        async def changed(within: float) -> bool:
            if self._listener.has_message(claim.id):
                return True
            args = (claim.resource, claim.id, self._listener.bell, place_token)
            found = await self._run(steps.FIND, args, self.now() + within)
            if busy is not None and (grant := self._grant(claim, place_token, found)) is not None:
                granted.append(grant)
            return all(rows.changed(busy, state, rung) for state, rung, _, _ in found)

        await poll(self._runtime, changed, deadline.left())
        if busy is None or granted:
            self._listener.take_token(claim.id)
        return granted[0] if granted else None

    async def _watch(self, kind: str, name: str, change_read: ChangeRead, timeout: float) -> None:
        async def changed(within: float) -> bool:
            return change_read.changed(
                await self._run(change_read.step, change_read.args, self.now() + within)
            )

        if self._listener.polling:
            await poll(self._runtime, changed, timeout)
        else:
            await super()._watch(kind, name, change_read, timeout)

    # ---- housekeeping ------------------------------------------------------------------

    def on_doubt(self, call: Callable[[], None]) -> None:
        self._state.doubt_callbacks.append(call)

    def inside(self) -> bool:
        return self._requester.source.inside() or self._listener.inside()

    def blocking(self) -> Store:
        return self.sides.blocking or self

    def for_keeper(self) -> Store:
        return self.sides.keeper(self)

    def after_fork(self) -> None:
        self._state.clear()
        self._keeper.after_fork()
        self._requester.source.after_fork()
        # The blocking side does it a second time, which is harmless: nobody waits yet
        self._listener.after_fork()
        for side in self.sides.kept:
            side._requester.source.after_fork()

    async def close(self) -> None:
        self._state.closed = True
        self._share.leave()
        await self._requester.source.close()
        for side in self.sides.kept:
            await side._requester.source.close()
        if self.sides.blocking is not None:
            await self.sides.blocking.close()
