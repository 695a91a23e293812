from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The command `interlock`, on a lock file of this test's own."""
    made = Program(tmp_path)
    yield made
    made.finish()
