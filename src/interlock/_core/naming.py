"""Names from arguments: a decorated function's name is a template, which each call fills in.

`ship:{order_id}` over `def ship(order_id)` is another resource for each order. The template is checked when
the function is decorated, so that a misspelt parameter stops the program at its start, and not when the first
order comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

from interlock.errors import InvalidName

if TYPE_CHECKING:
    from inspect import Signature

Name = str | Callable[..., str]
Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]

_ROOT = re.compile(r"[^.\[]*")


class Naming:
    """A resource's name: a template such as `invoice:{order_id}`, or a callable that gets a call's
    arguments.
    """

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
                "a callable gets the arguments of a decorated function to make a name of; `with` has none: "
                "name it by a str"
            )
        return InvalidName(
            f"{self.text}: {{{self._fields[0]}}} is filled in from the arguments of a decorated function, "
            "and `with` has none; use an f-string, and write {{ and }} for braces that belong to the "
            "name"
        )

    def over(self, function: Callable[..., object]) -> Callable[[Arguments, Keywords], str]:
        """How the name follows from the arguments of a call; raises now if it never can."""
        if (resource := self.resource) is not None:
            return lambda args, kwargs: resource
        if not isinstance(name := self._name, str):
            return lambda args, kwargs: name(*args, **kwargs)
        said = getattr(function, "__qualname__", repr(function))
        called = self._signature(function, said)
        self._check_fields(called, said)

        def filled_in(args: Arguments, kwargs: Keywords) -> str:
            values = _values(called, said, args, kwargs)
            try:
                return name.format_map(values)
            # A missing item or attribute, or a format that is not one of this value's type.
            except (LookupError, AttributeError, ValueError, TypeError) as error:
                raise InvalidName(f"{name}: could not be filled in for a call of {said}: {error}") from error

        return filled_in

    def _signature(self, function: Callable[..., object], said: str) -> Signature:
        from inspect import signature  # here, not above: `import interlock` stays light

        try:
            return signature(_behind_wrappers(function))
        except ValueError:  # a function that is written in C may not tell
            raise InvalidName(
                f"{self.text}: {said} does not tell the names of its parameters; decorate a `def` that calls "
                "it"
            ) from None

    def _check_fields(self, called: Signature, said: str) -> None:
        """Raise for a field that no call can fill in."""
        takes = called.parameters
        anything = [name for name, parameter in takes.items() if parameter.kind is parameter.VAR_KEYWORD]
        for field in self._fields:
            if field in anything:
                raise InvalidName(
                    f"{self.text}: {{{field}}} stands for any number of arguments in {said}; name one of "
                    "them, as in {order_id}"
                )
            if field not in takes and not anything:
                has = f"it has {', '.join(takes)}" if takes else "it has none"
                raise InvalidName(
                    f"{self.text}: {said} has no parameter {field!r}; {has}; write {{{{ and }}}} for braces "
                    "that belong to the name"
                )


def names_over(
    names: Sequence[str], function: Callable[..., object]
) -> Callable[[Arguments, Keywords], list[str]] | None:
    """How the names of a decorator follow from the arguments of a call; None if each call has just these
    names.
    """
    namings = [Naming(name) for name in names]
    if [naming.resource for naming in namings] == list(names):
        return None
    each = [naming.over(function) for naming in namings]
    return lambda args, kwargs: [name(args, kwargs) for name in each]


def _behind_wrappers(function: Callable[..., object]) -> Callable[..., object]:
    """The callable that a call's arguments reach as they are.

    Not the one behind a bound method or a partial, which adds some: Django's `method_decorator` makes a
    partial that passes for the unbound method.
    """
    from functools import partial
    from inspect import unwrap

    found: Callable[..., object] = unwrap(
        function, stop=lambda one: isinstance(one, (partial, MethodType)) or hasattr(one, "__signature__")
    )
    if not isinstance(found, partial):
        return found
    filled_in = cast("partial[object]", found)
    # A new one, which passes for nothing else.
    return partial(filled_in.func, *filled_in.args, **filled_in.keywords)


def _fields(template: str) -> tuple[str, ...]:
    """The parameters that a template names: `order_id` for `invoice:{order_id}`."""
    if "{" not in template and "}" not in template:
        return ()
    from string import Formatter  # here, not above: `import interlock` stays light

    roots: list[str] = []
    try:
        for _, field, spec, conversion in Formatter().parse(template):
            if field is None:
                continue
            if conversion is not None and conversion not in ("r", "s", "a"):
                raise ValueError(f"!{conversion} is not a conversion")
            root = _ROOT.match(field)
            roots += ["" if root is None else root[0], *_fields(spec or "")]
    except ValueError as error:
        if isinstance(error, InvalidName):
            raise
        raise InvalidName(
            f"{template}: {error}; write {{{{ or }}}} for a brace that belongs to the name"
        ) from None
    if not all(root.isidentifier() for root in roots):
        raise InvalidName(
            f"{template}: write the name of a parameter between the braces, as in {{order_id}}, or {{{{ and "
            "}} for braces that belong to the name"
        )
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
            # Below the others: a keyword may be called as a positional-only parameter is.
            values = values.pop(name) | values
    return values
