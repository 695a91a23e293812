"""`with` statements that end whatever interrupts them.

A signal handler that raises (Ctrl-C, a time limit of a task queue) can strike between the last line of a body
and the first instruction of `__exit__`. No method can be protected at its first instruction, so the statement
itself is watched. Python looks `__exit__` up when the statement begins and keeps what it finds until the
statement is over. So each look-up makes an object of its own, and nothing else refers to it: when that object
dies, the body is over. A lease that was not given back by then is given back by the keeper, when it next
wakes.

    with lock:            the statement looks up lock.__exit__, then calls lock.__enter__()
    ExitStack             looks up type(lock).__exit__, then calls type(lock).__enter__(lock)

The object is a `functools.partial`, because a call of it leaves no frame that refers to it: the frames of an
exception's traceback may be kept for long. Its death is noted by a method of `deque`, because an interrupt
that strikes a callback written in Python would be swallowed, and the death with it.

An `ExitStack` keeps the object in a frame of its own while it calls it. If that call raises, the frame and
the exception refer to each other, so the object lives on until the garbage collector runs. There it is enough
to know that the exit was called and is not running any more. An `lru_cache` without a size counts its calls
before it runs anything that an interrupt could strike, so the object is one of these.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from types import FrameType
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


CO_COROUTINE = 0x80  # as in `inspect`, which takes long to import
MAX_UNSWEPT = 100  # statements that wait to be swept

_over: deque[Watch] = deque()
"""Statements that are over and have not said that they gave everything back."""


class Statement:
    """One `with` statement. `entered` is what it holds; None if it was not entered, or is ended by hand."""

    __slots__ = ("entered", "leaving", "manager", "watch")

    def __init__(self, manager: object) -> None:
        self.manager = manager  # the context manager, or its class where that is all Python looked at
        self.entered: Any = None
        self.watch: Watch | None = None
        self.leaving = False  # its exit is running, called by an ExitStack

    def end(self) -> None:
        """Everything was given back, or the keeper has taken that over: nobody need watch any more."""
        self.watch = self.entered = self.manager = None
        if _stacks:
            _stacks.pop(self, None)

    def abandon(self) -> None:
        """Have the keeper give back what was not. May be repeated, by a thread that was interrupted here."""
        entered = self.entered
        if entered is not None:
            entered._abandon()
        self.end()

    def interrupted(self) -> bool:
        """Whether an ExitStack called the exit, and an exception ended the call."""
        watch = self.watch
        method = None if watch is None else watch()
        return bool(
            isinstance(method, _COUNTED)
            and method.cache_info().misses
            and not self.leaving
            and not _running(self)
        )


_stacks: dict[Statement, None] = {}
"""The statements of ExitStacks.

They are kept here also because the collector drops a `Watch` that is garbage itself.
"""


def _leave_stack(leave: Callable[..., Any], statement: Statement, *told: object) -> Any:
    """The exit of a statement of an ExitStack."""
    statement.leaving = True
    try:
        return leave(statement, *told)
    finally:
        statement.leaving = False


_COUNTED = type(lru_cache(maxsize=0)(_leave_stack))


def _running(statement: Statement) -> bool:
    """Whether a thread has just called the exit of this statement, and got no further than its first
    instruction.
    """
    frames: list[FrameType | None] = list(sys._current_frames().values())
    frame: FrameType | None = None
    try:
        while frames:
            frame = frames.pop()
            while frame is not None:
                if frame.f_code is _leave_stack.__code__ and frame.f_locals.get("statement") is statement:
                    return True
                frame = frame.f_back
        return False
    finally:  # one of them is our own: in a cycle, all our callers' variables would live on
        frames, frame = [], None


def sweep() -> None:
    """Clean up after statements that were cut short. For keepers; never waits.

    A statement that cannot be cleaned up now is tried again by the next sweep, behind all others: it must not
    keep them from being cleaned up, whatever is wrong with it. Its error is raised in the end.
    """
    failure: Exception | None = None
    for _ in range(len(_over)):
        try:
            watch = _over[0]
        except IndexError:  # another keeper was quicker
            break
        try:
            watch.statement.abandon()
        except Exception as error:
            failure = error
            _over.append(watch)
        with suppress(ValueError):  # another keeper was quicker
            # Last: an interrupt must not lose it. Dead references are equal only to themselves.
            _over.remove(watch)
    for statement in list(_stacks):
        try:
            if statement.interrupted():
                statement.abandon()
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


class _Here(threading.local):
    statement: Statement | None = None


_here = _Here()


def entered(manager: object, what: Entered) -> Statement:
    """Note what the statement that has just begun over `manager` holds; a call by hand is watched by
    nobody.
    """
    statement, _here.statement = _here.statement, None
    if statement is not None and (statement.manager is manager or statement.manager is type(manager)):
        if statement.watch is not None and statement.watch() is not None:  # it has begun, and is not over
            statement.entered = what
            return statement
    return Statement(manager)


class ExitMethod:
    """An `__exit__` or `__aexit__` that knows the statement it belongs to.

    `leave` is called with the statement, the context manager, and what Python tells an `__exit__`. It calls
    `Statement.end` when nothing is left to do.
    """

    def __init__(self, leave: Callable[..., Any]) -> None:
        self.leave = leave
        self.__doc__ = leave.__doc__

    def __get__(self, manager: object | None, kind: type) -> Callable[..., Any]:
        if len(_over) > MAX_UNSWEPT:  # a program that takes no lease has no keeper
            sweep()
        statement = Statement(kind if manager is None else manager)
        # In a list, and never in a variable: a profiler or another thread that looks at this frame can keep
        # it for long after it has returned, with its variables.
        method: list[Callable[..., Any]]
        if manager is not None:
            method = [partial(self.leave, statement, manager)]
        else:
            method = [self._of_stack(statement)]
        statement.watch = watch = Watch(method[0], _over.append)
        watch.statement = _here.statement = statement
        return method.pop()

    def _of_stack(self, statement: Statement) -> Callable[..., Any]:
        _stacks[statement] = None
        if self.leave.__code__.co_flags & CO_COROUTINE:
            return partial(self.leave, statement)  # it runs in steps; only its first one could be struck
        return lru_cache(maxsize=0)(partial(_leave_stack, self.leave, statement))


class OtherExit:
    """The `__exit__` or `__aexit__` of an object that is entered by entering another: a condition's lock."""

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self._other = other

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name
        self._of_stack = ExitMethod(self._leave_async if name == "__aexit__" else self._leave)

    def __get__(self, manager: object | None, kind: type) -> Callable[..., Any]:
        if manager is not None:
            return getattr(self._other(manager), self._name)  # type: ignore[no-any-return]
        return self._of_stack.__get__(None, kind)

    def _leave(self, statement: Statement, manager: object, *told: object) -> Any:
        other = self._other(manager)
        (exit_method, *_) = (
            vars(kind)[self._name] for kind in type(other).__mro__ if self._name in vars(kind)
        )
        return exit_method.leave(statement, other, *told)

    async def _leave_async(self, statement: Statement, manager: object, *told: object) -> Any:
        return await self._leave(statement, manager, *told)


def entering(manager: object, other: object) -> None:
    """Note that `manager` is being entered by entering `other`; see `OtherExit`."""
    statement = _here.statement
    if statement is not None and statement.manager is type(manager):
        statement.manager = other
