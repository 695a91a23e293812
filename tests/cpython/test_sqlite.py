"""CPython's own tests of its locks, on the SQLite store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import pytest

from tests.cpython.judge import suites

pytestmark = (
    pytest.mark.soak
)  # in every run they judge the core on memory, and a store with round trips on Redis


@contextmanager
def sqlite() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/locks.db"


globals().update(suites("SQLite", sqlite))
