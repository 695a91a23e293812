"""Runs one step: borrows a connection, keeps the deadline, and repeats what may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlock.backends.kit.connect_pace import left_after
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Again, Broken, Demoted, NotInstalled, Source
from interlock.backends.sql.keeper import KeeperConnection
from interlock.backends.sql.steps import EXAMINE, RELEASE, REPEATABLE, Rows
from interlock.errors import StoreUnavailable, Unreached

MIN_REQUEST_S = 0.001  # seconds: a request that is made at all is given this long
FIRST_PAUSE_S = 0.002  # seconds before a step that met a deadlock is tried again
MAX_PAUSE_S = 0.1
PROMOTION_PAUSE_S = 0.1  # seconds before a read-only server is asked again
INSTALL_TIMEOUT_S = 10.0  # seconds that creating the tables may take, once


class Requester:
    """`run(step, args, until)` for one side of a client: its callers, its keeper, or the blocking side of an
    asyncio store.

    `for_keeper` says that this is the side of the keeper, or the blocking side of an asyncio store: there,
    connecting counts against the step's own time.
    """

    def __init__(
        self,
        source: Source,
        runtime: WaitRuntime,
        *,
        for_keeper: bool = False,
        blocking: bool = True,
        keeper: KeeperConnection | None = None,
        doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._runtime = runtime
        self._for_keeper = for_keeper
        self._blocking = blocking
        self._keeper = keeper
        self._doubt = doubt

    async def run(self, step: str, args: Sequence[Any], until: float) -> Rows:
        """Return the rows of a step, or raise; at `until` at the latest, plus the time to connect where
        the port allows it.
        """
        connecting_is_extra = not self._for_keeper and step not in (RELEASE, EXAMINE)
        tries, installed = _Tries(step), False
        while True:
            began = self._runtime.now()
            try:
                if self._keeper is not None and self._keeper.wanted:
                    until = await self._warm(self._keeper, until, connecting_is_extra)
                return await self._once(step, args, until, connecting_is_extra)
            except NotInstalled:
                if installed:
                    raise
                installed = True
                until = await self._install(until, connecting_is_extra)
                continue
            except StoreUnavailable as error:
                if isinstance(error, (Demoted, Broken)):
                    self.source.drain()
                    self._doubt()
                failure = tries.outcome(error)
                wait = tries.pause_after(error)
                # The next refusal takes as long as this one: if it were cut off, nobody would know whether
                # the step was done.
                needed = self._runtime.now() - began if isinstance(error, Demoted) else 0.0
            if wait is None or self._runtime.now() + wait + needed >= until:
                raise failure from None
            if wait:
                await self._runtime.wait(self._runtime.signal(), wait)

    async def _warm(self, keeper: KeeperConnection, until: float, connecting_is_extra: bool) -> float:
        """Connect the caller and the keeper.

        Returns the new deadline: the time for the first connection is not the step's own.
        """
        pace, timeout = self.source.pace, until - self._runtime.now()
        counts = not connecting_is_extra or pace.counts(timeout)
        time = pace.within(timeout) if connecting_is_extra else max(MIN_REQUEST_S, timeout)
        await self.source.warm(time)  # first: a user's pool shows there how the keeper connects, too
        await keeper.warm(time, blocking=self._blocking)
        return until if counts else self._runtime.now() + timeout

    async def _once(self, step: str, args: Sequence[Any], until: float, connecting_is_extra: bool) -> Rows:
        began = self._runtime.now()
        timeout = until - began
        counts = self.source.pace.counts(timeout)
        connection, new = await self.source.borrow(until, connecting_is_extra)
        sound = False
        try:
            now = self._runtime.now()
            left = timeout if connecting_is_extra else until - now
            if connecting_is_extra and new and counts:
                left = left_after(timeout, now - began)
            rows = await connection.run(step, args, max(MIN_REQUEST_S, left))
            sound = True
            return rows
        except (Again, NotInstalled):
            sound = True
            raise
        finally:
            if not sound:
                # Now: the next line may be interrupted, and a late answer must not be read by anybody.
                connection.discard()
            await self.source.give_back(connection, sound)

    async def _install(self, until: float, connecting_is_extra: bool) -> float:
        """Create what is missing.

        Returns the new deadline: if `connecting_is_extra`, it is later by the time that this took.
        """
        left = until - self._runtime.now()
        connection, _ = await self.source.borrow(until, connecting_is_extra)
        sound = False
        try:
            await connection.install(INSTALL_TIMEOUT_S if connecting_is_extra else max(MIN_REQUEST_S, left))
            sound = True
        except Again:
            sound = True
            raise Unreached("others are creating the tables of interlock just now") from None
        finally:
            if not sound:
                connection.discard()
            await self.source.give_back(connection, sound)
        return self._runtime.now() + left if connecting_is_extra else until


class _Tries:
    """What has become of the tries of one step so far."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._pause = FIRST_PAUSE_S
        self._lost = ""  # why the answer to a try is not known
        self._refused = ""  # why the server takes no writes

    def outcome(self, error: StoreUnavailable) -> StoreUnavailable:
        """The error to raise if this try was the last one: the first reason is in it, and whether anything
        may have been done.
        """
        earlier = self._lost or self._refused
        if not earlier:
            return error
        text = earlier if str(error) == earlier else f"{earlier}; then {error}"
        if self._lost:
            return Broken(text)
        return Unreached(text) if isinstance(error, Unreached) else StoreUnavailable(text)

    def pause_after(self, error: StoreUnavailable) -> float | None:
        """Seconds after which the step may be sent again; None if it may not."""
        if isinstance(error, Again):
            pause, self._pause = self._pause, min(MAX_PAUSE_S, self._pause * 2)
            return pause
        if isinstance(error, Demoted):
            self._refused = str(error)
            return PROMOTION_PAUSE_S
        if isinstance(error, Broken) and not self._lost and self._step in REPEATABLE:
            self._lost = str(error)
            return 0.0
        return None
