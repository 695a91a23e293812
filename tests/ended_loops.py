"""Event loops that end in the middle of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest


def abandon(task: asyncio.Task[Any]) -> None:
    """End what the loop left in the middle, as the interpreter would."""
    with suppress(RuntimeError):
        task.get_coro().close()


T = TypeVar("T", bound=Callable[..., None])


# asyncio and redis-py complain of connections that were open when their loop ended: that is what these tests do.
def ended_loops(test: T) -> T:
    quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    return pytest.mark.usefixtures("collected")(quiet(test))  # type: ignore[no-any-return]
