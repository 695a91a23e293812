"""How much one measure does: a whole batch, or with `--quick` a part, to see that everything works."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

PAIRS = 400
QUICK_ROUNDS = 3
_quick = False


def hurry() -> None:
    """From now on batches are short: their figures show that a question can be asked, not its answer."""
    global _quick
    _quick = True


def hurried() -> bool:
    return _quick


def times(whole: int) -> int:
    """How many operations a batch of `whole` has."""
    return max(1, whole // 8) if _quick else whole


def seconds(whole: float) -> float:
    """How long a batch of `whole` seconds lasts."""
    return whole / 4 if _quick else whole


def timed(pair: Callable[[], object], whole: int = PAIRS) -> float:
    """Seconds for one of a batch."""
    count = times(whole)
    began = time.perf_counter()
    for _ in range(count):
        pair()
    return (time.perf_counter() - began) / count


def middle(once: Callable[[], float], whole: int) -> float:
    """The median of a batch in which each tells its own time."""
    return median(once() for _ in range(times(whole)))
