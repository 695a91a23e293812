"""Runs one step: borrows a connection, keeps the deadline, and repeats what may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Again, Broken, Demoted, NotInstalled, Rows, Source
from interlock.backends.sql.keeper import KeeperConnection
from interlock.backends.sql.steps import RELEASE, REPEATABLE
from interlock.errors import StoreUnavailable, Unreached

SHORTEST = 0.001  # seconds: a request that is made at all is given this long
FIRST_PAUSE = 0.002  # seconds before a step that met a deadlock is tried again
LONGEST_PAUSE = 0.1
PROMOTING = 0.1  # seconds before a read-only server is asked again
INSTALLING = 10.0  # seconds that creating the tables may take, once


class Runner:
    """`run(step, args, until)` for one side of a client: its callers, its keeper, or the blocking twin of an asyncio store.

    `hurried` is for the keeper and the twin: there, connecting counts against the step's own time.
    """

    def __init__(
        self,
        source: Source,
        runtime: WaitRuntime,
        *,
        connect_timeout: float,
        hurried: bool = False,
        blocking: bool = True,
        keeper: KeeperConnection | None = None,
        doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._runtime = runtime
        self._connect_timeout = connect_timeout
        self._hurried = hurried
        self._blocking = blocking
        self._keeper = keeper
        self._doubt = doubt

    async def run(self, step: str, args: Sequence[Any], until: float) -> Rows:
        """Return the rows of a step, or raise; at `until` at the latest, plus the time to connect where the port allows it."""
        patient = not self._hurried and step != RELEASE
        timeout = until - self._runtime.now()
        if self._keeper is not None and self._keeper.wanted:
            time = self._connect_timeout if patient else max(SHORTEST, timeout)
            await self.source.warm(time)  # first: a user's pool shows there how the keeper connects, too
            await self._keeper.warm(time, blocking=self._blocking)
            if patient:
                until = self._runtime.now() + timeout
        pause, installed, lost = FIRST_PAUSE, False, ""
        while True:
            try:
                return await self._once(step, args, until, patient)
            except NotInstalled:
                if installed:
                    raise
                installed = True
                until = await self._install(until, patient)
                continue
            except Again as error:
                failure: StoreUnavailable = error
                wait, pause = pause, min(LONGEST_PAUSE, pause * 2)
            except Demoted as error:
                failure, wait = error, PROMOTING
                self.source.drain()
                self._doubt()
            except Broken as error:
                self.source.drain()
                self._doubt()
                if lost or step not in REPEATABLE:
                    raise
                failure, wait, lost = error, 0.0, str(error)
            except Unreached as error:
                if not lost:
                    raise
                raise Broken(f"{lost}; then {error}") from None  # the first try may have been done
            if self._runtime.now() + wait >= until:
                raise Broken(str(failure)) if lost else failure
            if wait:
                await self._runtime.wait(self._runtime.signal(), wait)

    async def _once(self, step: str, args: Sequence[Any], until: float, patient: bool) -> Rows:
        timeout = until - self._runtime.now()
        link, _ = await self.source.borrow(until, patient)
        sound = False
        try:
            left = timeout if patient else until - self._runtime.now()
            rows = await link.run(step, args, max(SHORTEST, left))
            sound = True
            return rows
        except (Again, NotInstalled):
            sound = True
            raise
        finally:
            if not sound:
                link.discard()  # now: the next line may be interrupted, and a late answer must not be read by anybody
            await self.source.give_back(link, sound)

    async def _install(self, until: float, patient: bool) -> float:
        """Create what is missing. Returns the new deadline: for a patient caller this counts as connecting."""
        left = until - self._runtime.now()
        link, _ = await self.source.borrow(until, patient)
        sound = False
        try:
            await link.install(INSTALLING if patient else max(SHORTEST, left))
            sound = True
        except Again:
            sound = True
            raise Unreached("others are creating the tables of interlock just now") from None
        finally:
            if not sound:
                link.discard()
            await self.source.give_back(link, sound)
        return self._runtime.now() + left if patient else until
