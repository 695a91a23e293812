"""Run once: a lock that is taken at once or not at all; a caller that does not get it skips."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from interlock import events
from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.naming import Arguments, Keywords, Name, Naming
from interlock._core.settings import Settings
from interlock._core.signature import as_present_holders
from interlock.errors import InterlockError, Skipped
from interlock.model import Standing


class OnceAttempt(Attempt):
    """An attempt that does not wait: it raises `Skipped` if another has the resource."""

    __slots__ = ()

    def _report_timeout(self) -> None:
        """Report nothing: `timed_out` reports that the job was skipped, and it has not waited."""

    async def timed_out(self) -> Skipped:
        holding, holder = self._holding, self.holder or await self._ask_for_holder()
        assert isinstance(holding, OnceHolding)
        holding.skipped = Skipped(holding.resource, holder, raised=True)
        waited = self._runtime.now() - self.began
        self.client.emit(events.Skipped(holding.resource, holder, waited, holding.template))
        return holding.skipped

    async def _ask_for_holder(self) -> Standing | None:
        """The oldest holder, of a store that does not name it when it refuses; None if it has gone
        meanwhile.
        """
        patience = timing.patience(self.left())
        try:
            queue = await self.client.store.inspect(self.claim.resource, patience, limit=1)
        except InterlockError:  # that it was skipped is certain; because of whom is only good to know
            return None
        return next(iter(as_present_holders(queue).holders), None)


class OnceHolding(Holding):
    """A resource that is taken at once or not at all."""

    attempt_type = OnceAttempt
    skipped: Skipped | None = None  # what its last attempt raised
    job: Callable[..., object] | None = None  # the function that is called under it

    async def _leave_after(self, lease: Lease | None, error: BaseException | None) -> None:
        if lease is not None and self.terms.min_hold and _struck_at_entry(self.job, error):
            lease._never_used()
        await super()._leave_after(lease, error)


def _struck_at_entry(function: object, error: BaseException | None) -> bool:
    """Return whether an interrupt has ended a call of this function before its first instruction.

    Python looks for signals when a function is entered, so that an interrupt of the caller is often raised
    there.
    """
    raised_in = None if error is None or error.__traceback__ is None else error.__traceback__.tb_next
    if raised_in is None:
        return False
    code = raised_in.tb_frame.f_code
    if code is not getattr(function, "__code__", None):
        return False
    from dis import get_instructions  # here, not above: it is hardly ever needed

    entry = next((each.offset for each in get_instructions(code) if each.opname == "RESUME"), -1)
    return raised_in.tb_lasti <= entry


class Once:
    """A job that runs once: over one resource, or over one for each call of a function whose arguments
    name it.
    """

    def __init__(self, client: Client, name: Name, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._naming = Naming(name)
        self.text = self._naming.text
        resource = self._naming.resource
        # Settings are checked now, not when the first call comes.
        plain = OnceHolding(client, self.text if resource is None else resource, settings)
        self.holding: OnceHolding | Unnamed = plain if resource is not None else Unnamed(self._naming)

    def over(self, function: Callable[..., object]) -> Callable[[Arguments, Keywords], OnceHolding]:
        """Return how each call of a function gets its holding; raise now if the name can never be filled
        in.
        """
        if not callable(function):
            raise TypeError("client.once takes a name, and what it returns decorates: @client.once('job')")
        name = self._naming.over(function)

        def holding(args: Arguments, kwargs: Keywords) -> OnceHolding:
            made = OnceHolding(self._client, name(args, kwargs), self._settings)
            made.template = "" if self._naming.resource is not None else self.text
            made.job = function
            return made

        return holding


class Unnamed:
    """Stands in for the holding of a `with` if only a call's arguments can complete the name."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming

    def attempt(self) -> NoReturn:
        raise self._naming.incomplete()
