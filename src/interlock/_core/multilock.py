"""Several resources at once: in sorted order, under one deadline, all or none.

Sorted by name, so that two callers who want the same resources in different orders cannot wait for
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.runtime import Owner
from interlock._core.settings import Settings
from interlock.errors import AcquireTimeout, InvalidSetting, NotHeld


class Multi:
    """The holdings of a multilock, sorted."""

    def __init__(self, client: Client, resources: Iterable[str], settings: Settings) -> None:
        if isinstance(resources, str):
            raise TypeError("a multilock takes several names, not one str")
        names = sorted({Holding(client, name, settings).resource for name in resources})
        if not names:
            raise InvalidSetting("a multilock needs at least one name")
        self.client = client
        self.holdings = [Holding(client, name, settings) for name in names]
        self.timeout = self.holdings[0].terms.timeout

    def renamed(self, resources: Iterable[str]) -> Multi:
        """As `Holding.renamed`, over other resources."""
        other = copy(self)
        other.holdings = [self.holdings[0].renamed(name) for name in sorted(set(resources))]
        return other

    @property
    def names(self) -> list[str]:
        return [holding.resource for holding in self.holdings]

    def attempt(
        self, blocking: bool = True, timeout: float | None = None, owner: Owner | None = None
    ) -> MultiAttempt:
        return MultiAttempt(self, timing.checked_wait(blocking, timeout, self.timeout), owner=owner)

    def owned(self) -> bool:
        return all(holding.owned() for holding in self.holdings)

    def held(self) -> bool:
        return all(holding.held() for holding in self.holdings)

    async def locked(self) -> bool:
        """Whether any of them is held by anyone."""
        for holding in self.holdings:
            if await holding.locked():
                return True
        return False

    async def release(self, owner: Owner | None = None) -> None:
        owner = owner or self.client.runtime.owner()
        await self.give_back([holding.current(owner) for holding in self.holdings], None, by=owner)

    def enter(self, attempt: MultiAttempt) -> None:
        for holding, each in zip(self.holdings, attempt.attempts, strict=True):
            holding.enter(each)

    def exit(self) -> MultiAttempt:
        """The attempts of the caller's `with` body that is ended by hand."""
        found = [holding.exit() for holding in self.holdings]
        return MultiAttempt(self, None, [attempt for attempt in found if attempt is not None])

    async def leave(self, attempt: MultiAttempt, error: BaseException | None) -> None:
        """The end of a `with`: release all, and never mask the body's own exception."""
        for each in attempt.attempts:
            if each.lease is not None:
                each.lease._holding.entered.pop(each, None)
        await self.give_back(attempt.leases, error)

    async def give_back(
        self, leases: Sequence[Lease], error: BaseException | None, *, by: Owner | None = None
    ) -> None:
        """Release all, the last taken first, whatever happens on the way; then raise the first failure.

        Without `by`, who releases them, it is the end of a `with`: its body may have released some by itself.
        """
        failure: BaseException | None = None
        until = self.client.runtime.now() + timing.time_for(error)
        for lease in reversed(leases):
            try:
                left = until - self.client.runtime.now()
                await lease._give_back(strict=by is not None, again=by is None, left=left, by=by)
            except NotHeld as loss:
                failure = failure or loss
            except BaseException as other:
                failure = other
        if failure is not None:
            if error is not None and isinstance(failure, Exception):
                error.add_note(f"and meanwhile: {failure}")
            else:
                raise failure


class MultiAttempt:
    """As `Attempt`, for all of them."""

    def __init__(
        self,
        multi: Multi,
        wait: float | None,
        attempts: Sequence[Attempt] = (),
        owner: Owner | None = None,
    ) -> None:
        self._multi = multi
        self._owner = owner
        self._wait = wait
        self.attempts = list(attempts)
        self._failed: Attempt | None = None
        self._began = multi.client.runtime.now()

    @property
    def leases(self) -> list[Lease]:
        return [attempt.lease for attempt in self.attempts if attempt.lease is not None]

    def _left(self) -> float | None:
        if self._wait is None:
            return None
        return max(0.0, self._began + self._wait - self._multi.client.runtime.now())

    async def run(self) -> list[Lease] | None:
        leases: list[Lease] = []
        try:
            for holding in self._multi.holdings:
                left = self._left()
                blocking, timeout = (True, None) if left is None else (left > 0, left if left > 0 else None)
                attempt = holding.attempt(blocking, timeout, owner=self._owner)
                if self._wait is not None:
                    attempt.be_back(self._began + self._wait)
                self.attempts.append(attempt)
                lease = await attempt.run()
                if lease is None:
                    self._failed = attempt
                    await self.undo()
                    return None
                leases.append(lease)
            for lease in leases:  # while it waited for the later ones, it may have lost an earlier one
                lease._begin()
        except BaseException:
            await self._multi.client.runtime.finish(self.undo)
            raise
        return leases

    async def undo(self) -> None:
        for attempt in reversed(self.attempts):
            await attempt.undo()

    def _abandon(self) -> None:
        """As `Attempt._abandon`."""
        for attempt in self.attempts:
            attempt._abandon()

    async def timed_out(self) -> AcquireTimeout:
        assert self._failed is not None
        error = await self._failed.timed_out()
        assert isinstance(error, AcquireTimeout)
        waited = self._multi.client.runtime.now() - self._began
        return AcquireTimeout(error.resource, waited, error.ahead, error.holders)
