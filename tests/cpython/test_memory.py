"""CPython's own tests of its locks, on the memory store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from tests.cpython.judge import suites


@contextmanager
def memory() -> Iterator[str]:
    yield f"memory://{uuid4().hex}"


globals().update(suites("Memory", memory))
