"""What tells the keeper that the body of a `with` statement is over."""

from __future__ import annotations

import gc
import sys
import weakref
from types import FrameType
from typing import Any

import pytest

from interlock._runtime import with_statements
from interlock._runtime.with_statements import ExitMethod, Statement, entered, sweep


class Held:
    """Stands for an attempt; counts how often the keeper was asked to give it back."""

    def __init__(self) -> None:
        self.abandoned = 0

    def _abandon(self) -> None:
        self.abandoned += 1


class Manager:
    def __init__(self, held: Held) -> None:
        self.held = held

    def __enter__(self) -> None:
        entered(self, self.held)

    @ExitMethod
    def __exit__(statement: Any, self: Any, *told: object) -> None:
        raise Struck  # as an interrupt would, before anything was given back


class Struck(BaseException):
    pass


def strike(manager: Manager) -> None:
    with manager:
        pass


def test_a_statement_that_was_cut_short_is_known() -> None:
    held = Held()
    with pytest.raises(Struck):
        strike(Manager(held))
    sweep()
    assert held.abandoned == 1


def test_a_statement_that_cannot_be_cleaned_up_does_not_keep_the_others_from_it() -> None:
    class Poisoned(Held):
        def _abandon(self) -> None:
            super()._abandon()
            if self.abandoned < 3:
                raise RecursionError

    poisoned, held = Poisoned(), Held()
    for each in (poisoned, held):
        with pytest.raises(Struck):
            strike(Manager(each))
    with pytest.raises(RecursionError):
        sweep()
    assert (poisoned.abandoned, held.abandoned) == (1, 1)
    with pytest.raises(RecursionError):
        sweep()
    sweep()
    sweep()
    assert (poisoned.abandoned, held.abandoned) == (3, 1)


def test_a_frame_that_a_profiler_keeps_does_not_keep_the_statement_alive() -> None:
    """Of `ExitMethod.__get__`, for example: the object that the statement keeps must not be a variable of it."""
    held, kept = Held(), list[FrameType]()

    def keep(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename == with_statements.__file__:
            kept.append(frame)

    sys.setprofile(keep)
    try:
        strike(Manager(held))
    except Struck:
        pass
    finally:
        sys.setprofile(None)
    assert "__get__" in {frame.f_code.co_name for frame in kept}
    sweep()
    assert held.abandoned == 1


def test_a_look_at_the_frames_of_all_threads_keeps_none_of_them() -> None:
    """One of them is the frame that looks. In a cycle with it, its callers' variables would live on."""

    def caller() -> weakref.ref[Held]:
        variable = Held()
        assert not with_statements._running(Statement(None))
        return weakref.ref(variable)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
