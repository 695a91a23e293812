"""How a coroutine runs without an event loop: one `send`, on the caller's own thread.

Under the blocking runtime every await blocks instead of suspending, so one `send` runs a coroutine
from end to end: no loop, no other thread, the caller's context and signal handling intact.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine returns; raise if it ever suspends (it must never return None for that)."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} suspended: is an asyncio store used by a blocking client?")
