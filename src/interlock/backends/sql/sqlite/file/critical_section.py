"""A lock that is released whatever interrupts the thread that holds it, and that knows which thread that is.

An exception can be thrown into a thread between any two instructions of Python: by Ctrl-C, by a signal
handler, or from another thread (`PyThreadState_SetAsyncExc`, as dramatiq and func_timeout do). Between an
`acquire` with a timeout and the `try` that would release it, such an exception would leave the lock held for
ever. So the way in and the way out are both C, and nothing of Python stands between them and the `with`
statement:

    with section:                          # C: takes nothing yet
        if section.take(True, timeout):  # if interrupted just after this, the lock is held and the block ends
            ...
                                         # C: releases it; RuntimeError (see `NOT_TAKEN`) if it was not taken

It is a re-entrant lock only because such a lock knows its owner. No thread may be inside twice: code that
runs in the middle of our own (a finalizer that the garbage collector calls, a signal handler) must ask
`owned` first.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Any

NOT_TAKEN = ("cannot release un-acquired lock",)
"""The arguments of the RuntimeError with which a block ends that never took the lock."""


class CriticalSection:
    """Lets one thread in at a time."""

    # As slots, which the interpreter reads from the instance: so both are the lock's own functions.
    __slots__ = ("__enter__", "__exit__", "owned", "take")

    __enter__: Callable[..., object]
    __exit__: Callable[..., None]

    def __init__(self) -> None:
        lock: Any = _thread.RLock()  # not threading's, which gevent replaces by one of Python
        self.__enter__ = bool  # the cheapest function of C that does nothing
        self.__exit__ = lock.__exit__
        self.take: Callable[..., bool] = lock.acquire
        self.owned: Callable[[], bool] = lock._is_owned
