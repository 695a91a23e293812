"""A store whose every call can be seen, and spoiled, before it is applied and after."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Literal, cast

from interlock._core.runtime import Runtime
from interlock._runtime.threads import Threads
from interlock.store import Store

When = Literal["before", "after"]
Spoil = Callable[[When, str, tuple[Any, ...]], object]


class Tap:
    """Passes everything on; `spoil(when, call, arguments)` may raise. Each call has awaits of its own."""

    decides_here = False  # so that every claim and every release is a call that can be seen

    def __init__(self, store: Store, runtime: Runtime, spoil: Spoil) -> None:
        self._store = store
        self._runtime = runtime
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._runtime.sleep(0)
            self._spoil("before", name, args)
            answer = await method(*args, **kwargs)
            self._spoil("after", name, args)
            await self._runtime.sleep(0)
            return answer

        return call

    def blocking(self) -> Any:
        twin = self._store.blocking()
        return self if twin is self._store else Tap(twin, Threads(), self._spoil)

    def for_keeper(self) -> Any:
        kept = self._store.for_keeper()
        return self if kept is self._store else Tap(kept, self._runtime, self._spoil)


def tapped(spoil: Spoil) -> Callable[[Store, Runtime], Store]:
    """For `Suite.client(wrap=...)`."""
    return lambda store, runtime: cast(Store, Tap(store, runtime, spoil))
