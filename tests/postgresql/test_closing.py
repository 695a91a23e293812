"""A watch that begins just while its store is closed ends at once, although the others were woken before it listened."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.testing.servers.postgresql import fresh_schema, steady
from interlock.urls import open_store
from tests.patience import PATIENCE


def test_a_watch_that_listens_after_the_others_were_woken_ends() -> None:
    store: Any = open_store(steady().url(fresh_schema()), Threads(), asynchronous=False)
    version = drive(store.compare_and_set("x", 0, "1", uuid4().hex)).version
    drive(store.watch_register("x", version, 0.1))
    closing, watched, source = threading.Event(), threading.Event(), store._requester.source
    close = source.close

    async def close_late() -> None:
        closing.set()
        watched.wait(PATIENCE)
        await close()

    source.close = close_late
    closer = threading.Thread(target=lambda: drive(store.close()))
    closer.start()
    closing.wait(PATIENCE)
    began = time.monotonic()
    drive(store.watch_register("x", version, PATIENCE / 2))
    took = time.monotonic() - began
    watched.set()
    closer.join()
    assert took < PATIENCE / 4
