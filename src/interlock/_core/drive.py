"""How a coroutine runs without an event loop: one `send`, on the caller's own thread.

Under the blocking runtime every await blocks instead of suspending, so one `send` runs a coroutine
from end to end: no loop, no other thread, the caller's context and signal handling intact.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


at_rest: Callable[[], object] | None = None
"""Called when a coroutine has run to its end, if somebody waits for such a moment (see
`interlock._api.shutdown`).
"""


def drive(coroutine: Coroutine[Any, Any, T], *, nested: bool = False) -> T:
    """Return what the coroutine returns; raise if it ever suspends (it must never return None for that).

    With `nested` it is a part of some larger work, such as a store's connecting, whose end is not yet at
    rest.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        if at_rest is not None and not nested:
            at_rest()
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} suspended: is an asyncio store used by a blocking client?")
