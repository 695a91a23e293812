from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program

if not Path("/proc/self/stat").exists():  # how the tests see whether a process lives, stops or has gone
    collect_ignore = ["test_run.py", "test_signals.py", "test_loss.py", "test_terminal.py"]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The command `interlock`, on a lock file of this test's own."""
    made = Program(tmp_path)
    yield made
    made.finish()
