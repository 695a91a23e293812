"""Decorated functions: which kinds there are, and how a generator holds a lease while it is iterated.

The body of a generator runs in steps, on whatever thread or in whatever task calls `next`: frameworks run the
halves of one in different threads, which come and go. So the generator itself owns the lease while it is
suspended, as long as it exists; while a step runs, its thread or task does. A generator that nobody has any
more is closed by Python, which ends the `with` statement in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal, cast

from interlock._core.lease import Lease
from interlock._core.runtime import Owner
from interlock._core.states import State
from interlock.errors import NotHeld

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


def refuse_context_manager(function: object, *, asynchronous: bool) -> None:
    """Raise for what `@contextmanager` made of a generator: its body would run when the lock has long been
    given back.

    A function that a context manager decorates, as `@transaction.atomic` does, is not one.
    """
    code = getattr(function, "__code__", None)
    if code is None or getattr(function, "__wrapped__", None) is None:
        return
    import contextlib

    # All that a decorator makes has the same code, which is not that of `contextlib.ContextDecorator`.
    if code is _code(contextlib.contextmanager):
        theirs, decorator, of = False, "@contextmanager", "interlock"
    elif code is _code(contextlib.asynccontextmanager):
        theirs, decorator, of = True, "@asynccontextmanager", "interlock.aio"
    else:
        return
    advice = "put the lock below" if theirs == asynchronous else f"use a lock of {of}, below"
    raise TypeError(
        f"{name_of(function)} is a context manager, whose body would run without the lock: {advice} "
        f"{decorator}"
    )


def _code(decorator: Callable[[Any], Any]) -> object:
    return decorator(name_of).__code__


def refuse_coroutine(function: object) -> None:
    """Raise for an async function: a decorator of the sync API cannot await it."""
    kind = kind_of(function)
    if kind in ("coroutine function", "async generator function"):
        article = "an" if kind.startswith("a") else "a"
        raise TypeError(f"{name_of(function)} is {article} {kind}: use a lock of interlock.aio")


def require_coroutine(function: object) -> None:
    """Raise for a function that is not async: a decorator of the async API would make it so."""
    kind = kind_of(function)
    if kind != "coroutine function":
        not_so = (
            "a generator function, but not an async one"
            if kind == "generator function"
            else "not a coroutine function"
        )
        raise TypeError(f"{name_of(function)} is {not_so}: use a lock of interlock, not of interlock.aio")


def refuse_generator(function: object) -> None:
    """Raise for a generator function, whose caller iterates over what it gets: a skipped one has nothing
    to give.
    """
    if kind_of(function) in ("generator function", "async generator function"):
        raise TypeError(
            f"{name_of(function)} is a generator function, which a decorator cannot skip: iterate inside "
            "`with client.once(...)`"
        )


UNFINISHED: dict[type, str] = {
    CoroutineType: "a coroutine",
    GeneratorType: "a generator",
    AsyncGeneratorType: "an async generator",
}
"""Results whose body has yet to run."""


def unfinished(function: object, result: object) -> TypeError:
    """The error for a decorated function that returned one of those: its body would run without the lock."""
    returned = type(result)
    kind = UNFINISHED[returned]
    if returned is CoroutineType:
        cast(Any, result).close()  # or Python warns that it was never awaited
    of = "interlock" if returned is GeneratorType else "interlock.aio"
    return TypeError(
        f"{name_of(function)} returned {kind}, whose body would run without the lock: decorate the function "
        f"with that body, by a lock of {of}"
    )


class GeneratorOwner:
    """A generator as an owner: alive as long as the `Iteration` that only its frame refers to."""

    __slots__ = ("__weakref__", "_iteration", "name", "quoted")

    def __init__(self, iteration: Iteration, name: str) -> None:
        self._iteration = weakref.ref(iteration)
        self.name = name
        self.quoted = '""'

    def alive(self) -> bool:
        return self._iteration() is not None

    def __str__(self) -> str:
        return f"generator {self.name}"


class Iteration:
    """The leases of a generator from its first step to its last.

    Nothing but the generator's frame refers to it.
    """

    def __init__(self, leases: Sequence[Lease], function: object, *, moves: bool = True) -> None:
        self._leases = leases
        self._runtime = leases[0]._runtime
        self._moves = moves  # not for rlocks, which count for the thread or task that entered
        self._owner = GeneratorOwner(self, name_of(function))
        self._let_go: list[Lease] = []  # leases that a step of the generator has released by itself

    def _own(self, owner: Owner) -> None:
        if self._moves:
            for lease in self._leases:
                lease._set_owner(owner)

    def resume(self) -> NotHeld | None:
        """A step begins; the error that its body must meet first, if a lease has ended since the last one."""
        self._own(self._runtime.owner())
        for lease in self._leases:
            if lease.state is State.LOST:
                return lease.loss()
            if lease.state is State.RELEASED and lease not in self._let_go:
                return lease._release()
        return None

    def suspend(self) -> None:
        """A step has ended."""
        self._let_go = [lease for lease in self._leases if lease._state is State.RELEASED]
        self._own(self._owner)


class Steps:
    """The steps of the generator below a decorated one, which delegates to them by `yield from`."""

    def __init__(self, iteration: Iteration, generator: Generator[Any, Any, Any]) -> None:
        self._iteration = iteration
        self._generator = generator

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        loss = self._iteration.resume()
        try:
            return self._generator.send(value) if loss is None else self._generator.throw(loss)
        finally:
            self._iteration.suspend()

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        self._iteration.resume()
        try:
            return self._generator.throw(_exception(kind, value, trace))
        finally:
            self._iteration.suspend()

    def close(self) -> None:
        self._iteration.resume()
        try:
            self._generator.close()
        finally:
            self._iteration.suspend()


def _exception(kind: Any, value: Any, trace: Any) -> BaseException:
    """The exception that `throw` was called with, also in the old way: its type, its argument and its
    traceback.
    """
    error: BaseException
    if isinstance(kind, BaseException):
        error = kind
    elif isinstance(value, BaseException):
        error = value
    else:
        error = kind() if value is None else kind(value)
    return error if trace is None else error.with_traceback(trace)


def rewrapped(decorate: Callable[[Any], Any], function: Any) -> Any:
    """A static or class method with its function decorated; None for anything else.

    Decorated as it is, it would get the instance as an argument too many, or could not be called at all.
    """
    if type(function) in (staticmethod, classmethod):
        return type(function)(decorate(function.__func__))
    return None
