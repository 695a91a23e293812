"""CPython's own tests of its locks, on the SQLite store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tests.cpython.judge import suites


@contextmanager
def sqlite() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/locks.db"


globals().update(suites("SQLite", sqlite))
