"""Run once: a lock that is taken at once or not at all; a caller that does not get it skips.

The name may follow from the arguments of a call, so that runs for different orders or days do not exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from interlock import events
from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.settings import Settings
from interlock._core.signature import all_signed
from interlock.errors import InterlockError, InvalidName, Skipped
from interlock.model import Standing

if TYPE_CHECKING:
    from inspect import Signature

Name = str | Callable[..., str]
Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]

_ROOT = re.compile(r"[^.\[]*")


class OnceAttempt(Attempt):
    """An attempt that does not wait: it raises `Skipped` if another has the resource."""

    __slots__ = ()

    async def timed_out(self) -> Skipped:
        holding, holder = self._holding, self.holder or await self._ask_for_holder()
        assert isinstance(holding, OnceHolding)
        holding.skipped = Skipped(holding.resource, holder, raised=True)
        self.client.emit(events.Skipped(holding.resource, holder))
        return holding.skipped

    async def _ask_for_holder(self) -> Standing | None:
        """The oldest holder, of a store that does not name it when it refuses; None if it has gone meanwhile."""
        patience = timing.patience(self.left())
        try:
            queue = await self.client.store.inspect(self.claim.resource, patience, limit=1)
        except InterlockError:  # that it was skipped is certain; because of whom is only good to know
            return None
        return next(iter(all_signed(queue).holders), None)


class OnceHolding(Holding):
    """A resource that is taken at once or not at all."""

    attempt_type = OnceAttempt
    skipped: Skipped | None = None  # what its last attempt raised


class Once:
    """A job that runs once: over one resource, or over one for each call of a function whose arguments name it."""

    def __init__(self, client: Client, name: Name, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._naming = Naming(name)
        self.text = self._naming.text
        resource = self._naming.resource
        # Settings are checked now, not when the first call comes.
        plain = OnceHolding(client, self.text if resource is None else resource, settings)
        self.holding: OnceHolding | Unnamed = plain if resource is not None else Unnamed(self._naming)

    def over(self, function: Callable[..., object]) -> Callable[[Arguments, Keywords], OnceHolding]:
        """Return how each call of a function gets its holding; raise now if the name can never be filled in."""
        if not callable(function):
            raise TypeError("client.once takes a name, and what it returns decorates: @client.once('job')")
        name = self._naming.over(function)
        return lambda args, kwargs: OnceHolding(self._client, name(args, kwargs), self._settings)


class Unnamed:
    """Stands in for the holding of a `with` if only a call's arguments can complete the name."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming

    def attempt(self) -> NoReturn:
        raise self._naming.incomplete()


class Naming:
    """A resource's name: a template such as `invoice:{order_id}`, or a callable that gets a call's arguments."""

    def __init__(self, name: Name) -> None:
        self._name = name
        self._fields: tuple[str, ...] = ()
        self.resource: str | None = None  # the name, if it does not depend on arguments
        if isinstance(name, str):
            self.text = name
            self._fields = _fields(name)
            if not self._fields:
                self.resource = name.format()  # `{{` and `}}` are braces that belong to the name
        elif callable(name):
            self.text = getattr(name, "__qualname__", type(name).__name__)
        else:
            raise TypeError(f"a name is a str, or a callable that makes one, not {type(name).__name__}")

    def incomplete(self) -> Exception:
        """The error for a `with`, which has no arguments to complete the name from."""
        if not isinstance(self._name, str):
            return TypeError(
                "a callable gets the arguments of a decorated function to make a name of; `with` has none: name it by a str"
            )
        return InvalidName(
            f"{self.text}: {{{self._fields[0]}}} is filled in from the arguments of a decorated function, and `with` has "
            "none; use an f-string, and write {{ and }} for braces that belong to the name"
        )

    def over(self, function: Callable[..., object]) -> Callable[[Arguments, Keywords], str]:
        """How the name follows from the arguments of a call; raises now if it never can."""
        if (resource := self.resource) is not None:
            return lambda args, kwargs: resource
        if not isinstance(name := self._name, str):
            return lambda args, kwargs: name(*args, **kwargs)
        from inspect import signature  # here, not above: `import interlock` stays light

        called, said = signature(function), getattr(function, "__qualname__", repr(function))
        self._check_fields(called, said)

        def filled_in(args: Arguments, kwargs: Keywords) -> str:
            values = _values(called, said, args, kwargs)
            try:
                return name.format_map(values)
            except (LookupError, AttributeError) as error:
                raise InvalidName(f"{name}: could not be filled in for a call of {said}: {error}") from error

        return filled_in

    def _check_fields(self, called: Signature, said: str) -> None:
        takes = called.parameters
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        for field in self._fields:
            if field not in takes and not anything:
                has = f"it has {', '.join(takes)}" if takes else "it has none"
                raise InvalidName(f"{self.text}: {said} has no parameter {field!r}; {has}")


def _fields(template: str) -> tuple[str, ...]:
    """The parameters that a template names: `order_id` for `invoice:{order_id}`."""
    if "{" not in template and "}" not in template:
        return ()
    from string import Formatter  # here, not above: `import interlock` stays light

    try:
        found = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise InvalidName(
            f"{template}: {error}; write {{{{ or }}}} for a brace that belongs to the name"
        ) from None
    roots = [root[0] for field in found if (root := _ROOT.match(field))]
    if not all(root.isidentifier() for root in roots):
        raise InvalidName(f"{template}: write the name of a parameter between the braces, as in {{order_id}}")
    return tuple(roots)


def _values(called: Signature, said: str, args: Arguments, kwargs: Keywords) -> Keywords:
    """The arguments of a call by the names of the parameters, defaults included."""
    try:
        bound = called.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{said}() {error}") from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    for name, parameter in called.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            values |= values.pop(name)
    return values
