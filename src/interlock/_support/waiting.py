"""The mark of functions in which a thread only waits."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_waits: set[CodeType] = set()


def only_waits(function: F) -> F:
    """Mark a function: at none of its lines does its thread hold a mutex, or leave anything half done.

    A signal that ends the program may release leases there: see `interlock._api.shutdown`. The mark adds
    nothing to a call.
    """
    _waits.add(function.__code__)
    return function


def waits_in(frame: FrameType) -> bool:
    """Whether the function of this frame is marked."""
    return frame.f_code in _waits
