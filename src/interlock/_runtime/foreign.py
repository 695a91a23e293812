"""Locks that are not interlock's, as the lock of a condition: threading's or asyncio's, or alike."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from interlock._core.runtime import Owner


class ForeignLock:
    """Any lock with acquire and release; asks for more only where the lock has it, as `threading` does.

    Such a lock knows its owners by itself.
    """

    def __init__(self, lock: Any) -> None:
        if not (callable(getattr(lock, "acquire", None)) and callable(getattr(lock, "release", None))):
            raise TypeError(f"a condition's lock needs acquire and release; {type(lock).__name__} has not")
        self._lock = lock

    def owned(self, owner: Owner) -> bool:
        if hasattr(self._lock, "_is_owned"):  # a recursive lock of threading
            return bool(self._lock._is_owned())
        return bool(self._lock.locked())

    def surely_owned(self, owner: Owner) -> bool:
        return hasattr(self._lock, "_is_owned") and bool(self._lock._is_owned())

    async def release_save(self, owner: Owner) -> Any:
        if hasattr(self._lock, "_release_save"):
            return self._lock._release_save()
        self._lock.release()
        return None

    async def acquire_restore(self, saved: Any, owner: Owner) -> None:
        if hasattr(self._lock, "_acquire_restore"):
            self._lock._acquire_restore(saved)
            return
        taken = self._lock.acquire()
        if isinstance(taken, Awaitable):  # a lock of asyncio
            await taken
