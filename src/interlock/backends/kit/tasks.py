"""Tasks that go on when their caller no longer waits, such as an attempt to connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


def retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception: otherwise the loop logs that nobody did, though all who waited were told."""
    if not task.cancelled():
        task.exception()
