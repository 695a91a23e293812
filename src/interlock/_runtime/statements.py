"""`with` statements that end whatever interrupts them.

A signal handler that raises (Ctrl-C, a time limit of a task queue) can strike between the last line of a body and
the first instruction of `__exit__`. No method can be protected at its first instruction, so the statement itself
is watched. Python looks `__exit__` up when the statement begins and keeps what it finds until the statement is
over. So each look-up makes an object of its own, and nothing else refers to it: when that object dies, the body
is over. A lease that was not given back by then is given back by the keeper, when it next wakes.

    with lock:            the statement looks up lock.__exit__, then calls lock.__enter__()
    ExitStack             looks up type(lock).__exit__, then calls type(lock).__enter__(lock)

The object is a `functools.partial`, because a call of it leaves no frame that refers to it: the frames of an
exception's traceback may be kept for long. (An `ExitStack` keeps it in a frame of its own while it calls it: if an
interrupt strikes there, the lease is given back once nobody keeps that traceback.) Its death is noted by a method of
`deque`, because an interrupt that strikes a callback written in Python would be swallowed, and the death with it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol


class Entered(Protocol):
    """An attempt or a lease that a statement holds."""

    def _abandon(self) -> None:
        """The statement is over: if the lease was not given back, see that it is. Never waits."""
        ...


class Watch(weakref.ref[Any]):
    """A reference to the object that lives as long as a statement."""

    __slots__ = ("statement",)

    statement: Statement


MOST = 100  # statements that wait to be swept

_over: deque[Watch] = deque()
"""Statements that are over and have not said that they gave everything back."""


class Statement:
    """One `with` statement. `entered` is what it holds; None if it was not entered, or is ended by hand."""

    __slots__ = ("entered", "manager", "watch")

    def __init__(self, manager: object) -> None:
        self.manager = manager  # the context manager, or its class where that is all Python looked at
        self.entered: Any = None
        self.watch: Watch | None = None

    def end(self) -> None:
        """Everything was given back, or the keeper has taken that over: nobody need watch any more."""
        self.watch = self.entered = self.manager = None


def sweep() -> None:
    """Clean up after statements that were cut short. For keepers; never waits."""
    while _over:
        try:
            statement = _over.popleft().statement
        except IndexError:  # another keeper was quicker
            return
        entered = statement.entered
        statement.end()
        if entered is not None:
            entered._abandon()


class _Here(threading.local):
    statement: Statement | None = None


_here = _Here()


def entered(manager: object, what: Entered) -> Statement:
    """Note what the statement that has just begun over `manager` holds; a call by hand is watched by nobody."""
    statement, _here.statement = _here.statement, None
    if statement is not None and (statement.manager is manager or statement.manager is type(manager)):
        if statement.watch is not None and statement.watch() is not None:  # it has begun, and is not over
            statement.entered = what
            return statement
    return Statement(manager)


class OtherExit:
    """The `__exit__` or `__aexit__` of an object that is entered by entering another: a condition's lock."""

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self._other = other

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, manager: object | None, kind: type) -> Callable[..., Any]:
        if manager is not None:
            return getattr(self._other(manager), self._name)  # type: ignore[no-any-return]

        def leave(of: object, *told: object) -> Any:
            return getattr(self._other(of), self._name)(*told)

        return leave


class ExitMethod:
    """An `__exit__` or `__aexit__` that knows the statement it belongs to.

    `leave` is called with the statement, the context manager, and what Python tells an `__exit__`. It calls
    `Statement.end` when nothing is left to do.
    """

    def __init__(self, leave: Callable[..., Any]) -> None:
        self._leave = leave
        self.__doc__ = leave.__doc__

    def __get__(self, manager: object | None, kind: type) -> Callable[..., Any]:
        statement = Statement(kind if manager is None else manager)
        method = (
            partial(self._leave, statement) if manager is None else partial(self._leave, statement, manager)
        )
        statement.watch = watch = Watch(method, _over.append)
        watch.statement = _here.statement = statement
        if len(_over) > MOST:  # a program that takes no lease has no keeper
            sweep()
        return method
