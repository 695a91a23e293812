"""Calls near the recursion limit, at every depth."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import interlock

LIMIT = 220
ROOM = 60  # frames: more than any call of ours takes


@contextmanager
def limited() -> Iterator[None]:
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(depth + LIMIT)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
        logging.disable(logging.NOTSET)


def deep(frames: int, call: Callable[[], object]) -> object:
    return call() if frames == 0 else deep(frames - 1, call)


def acquires_near_the_limit(client: interlock.Client, judge: interlock.Client) -> None:
    """Acquire at every depth near the limit, free and held, and release what was taken."""
    with judge.lock("held"):
        for room in range(1, ROOM):
            for name in (f"free{room}", "held"):
                lock = client.lock(name, timeout=0.01)
                try:
                    with limited():
                        deep(LIMIT - room, lock.acquire)
                except (RecursionError, interlock.InterlockError):
                    continue
                if lock.owned():
                    lock.release()
