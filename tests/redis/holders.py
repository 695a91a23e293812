"""Holds a lock by any face and keeper of a client, and notes when it was lost: for tests that cut servers off."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any, Literal

import interlock
from interlock import aio
from tests.patience import PATIENCE

Face = Literal["sync", "async", "task"]
FACES: tuple[Face, ...] = ("sync", "async", "task")


class Holder:
    """Holds `name` from the start of the `with` until it is lost, or until the end of the `with`."""

    def __init__(self, url: str, name: str, ttl: float, face: Face = "sync") -> None:
        self.lost = threading.Event()
        self.lost_at = 0.0
        self._held, self._over = threading.Event(), threading.Event()
        self._url, self._name, self._ttl, self._face = url, name, ttl, face
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _note(self, _: Any) -> None:
        self.lost_at = time.monotonic()
        self.lost.set()

    def _run(self) -> None:
        try:
            if self._face == "sync":
                self._hold()
            else:
                asyncio.run(self._hold_on_loop("task" if self._face == "task" else "thread"))
        except BaseException as error:
            self._error = error
            self._held.set()

    def _hold(self) -> None:
        client = interlock.connect(self._url, ttl=self._ttl)
        lease = client.lock(self._name, on_lost=self._note).acquire(timeout=PATIENCE)
        assert lease
        self._held.set()
        self._over.wait()
        client.close()

    async def _hold_on_loop(self, keeper: Literal["thread", "task"]) -> None:
        async with aio.connect(self._url, ttl=self._ttl, keeper=keeper) as client:
            lease = await client.lock(self._name, on_lost=self._note).acquire(timeout=PATIENCE)
            assert lease
            self._held.set()
            while not self._over.is_set():
                await asyncio.sleep(0.01)

    def __enter__(self) -> Holder:
        self._thread.start()
        assert self._held.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
