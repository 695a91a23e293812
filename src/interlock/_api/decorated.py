"""Functions that are decorated by a lock: which kinds there are, and which would run without the lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal, cast

Kind = Literal["function", "coroutine function", "generator function", "async generator function"]


def kind_of(function: object) -> Kind:
    """The kind of thing that a call of it begins; also for partials and for callable objects."""
    import inspect  # here, not above: `import interlock` stays light

    candidates = [function]
    if not inspect.isroutine(function) and not isinstance(function, type):
        candidates.append(getattr(function, "__call__", None))  # noqa: B004 - the method, not whether there is one
    for candidate in candidates:
        if inspect.isasyncgenfunction(candidate):
            return "async generator function"
        if inspect.iscoroutinefunction(candidate):
            return "coroutine function"
        if inspect.isgeneratorfunction(candidate):
            return "generator function"
    return "function"


def name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def refuse_context_manager(function: object) -> None:
    """Raise for a function that `@contextmanager` has made of a generator: its body would run long after the
    lock has been given back.

    A function that a context manager decorates, as `@transaction.atomic` does, is not one.
    """
    code = getattr(function, "__code__", None)
    if code is None or getattr(function, "__wrapped__", None) is None:
        return
    # All that a decorator makes has the same code, which is not that of `contextlib.ContextDecorator`.
    if code in (_code(contextlib.contextmanager), _code(contextlib.asynccontextmanager)):
        raise TypeError(
            f"{name_of(function)} is a context manager, whose body would run without the lock: take the lock "
            "inside it, around its yield"
        )


def _code(decorator: Callable[[Any], Any]) -> object:
    return decorator(name_of).__code__


def refuse_coroutine(function: object) -> None:
    """Raise for an async function: a decorator of the sync API cannot await it."""
    if kind_of(function) == "coroutine function":
        raise TypeError(f"{name_of(function)} is a coroutine function: use a lock of interlock.aio")


def require_coroutine(function: object) -> None:
    """Raise for a function that is not async: a decorator of the async API would make it so."""
    if kind_of(function) != "coroutine function":
        raise TypeError(
            f"{name_of(function)} is not a coroutine function: use a lock of interlock, not of interlock.aio"
        )


def refuse_generator(function: object, why_and_what: str) -> None:
    """Raise for a generator function, with what its author can do instead.

    Its body runs in steps, on whatever thread or in whatever task iterates it, and may never end: no thread
    and no task would own the lease between two steps.
    """
    kind = kind_of(function)
    if kind in ("generator function", "async generator function"):
        article = "an" if kind.startswith("a") else "a"
        raise TypeError(f"{name_of(function)} is {article} {kind}, {why_and_what}")


LOCK_INSIDE = "whose body runs when the call has returned: take the lock inside the body"
NOT_SKIPPED = "which a decorator cannot skip: iterate inside `with client.once(...)`"

UNFINISHED: dict[type, str] = {
    CoroutineType: "a coroutine",
    GeneratorType: "a generator",
    AsyncGeneratorType: "an async generator",
    contextlib._GeneratorContextManager: "a context manager",
    contextlib._AsyncGeneratorContextManager: "an async context manager",
}
"""Results of a call, such as coroutines and generators, whose body has not run yet."""


def unfinished(function: object, result: object) -> TypeError:
    """The error for a decorated function that returned such a result: its body would run without the lock."""
    returned = type(result)
    kind = UNFINISHED[returned]
    if returned is CoroutineType:
        cast(Any, result).close()  # or Python warns that it was never awaited
    advice = (
        "decorate the function with that body, by a lock of interlock.aio"
        if returned is CoroutineType
        else "take the lock inside that body"
    )
    return TypeError(f"{name_of(function)} returned {kind}, whose body would run without the lock: {advice}")


def rewrapped(decorate: Callable[[Any], Any], function: Any) -> Any:
    """A static or class method with its function decorated; None for anything else.

    Decorated as it is, it would get the instance as an argument too many, or could not be called at all.
    """
    if type(function) in (staticmethod, classmethod):
        return type(function)(decorate(function.__func__))
    return None
