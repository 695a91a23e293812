"""CPython's own tests of its locks, on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from interlock.testing.servers.redis import steady
from tests.cpython.judge import suites

pytestmark = pytest.mark.server


@contextmanager
def redis() -> Iterator[str]:
    yield steady().url(f"{uuid4().hex}:")


globals().update(suites("Redis", redis))
