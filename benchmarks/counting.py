"""Counting Python's calls: a busy machine does not change the count, and fewer calls are what makes a pair quicker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """How often a function of Python was called, or a coroutine was resumed, on this thread."""

    def __init__(self) -> None:
        self.seen = 0

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.seen += 1


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls in the block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(once: Callable[[], object], times: int = 50) -> float:
    """Calls of one of these, without those that only the first ones need."""
    for _ in range(times):
        once()
    with counted() as calls:
        for _ in range(times):
            once()
    return round(calls.seen / times) - 1  # without `once` itself, nor the end of the block
