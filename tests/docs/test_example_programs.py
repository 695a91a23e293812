"""The programs in examples/ run as they are, and the page that lists them lists all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import links
from tests.house.source import ROOT, SRC
from tests.patience import PATIENCE

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_example_runs_as_it_is(program: Path, tmp_path: Path) -> None:
    env = {**os.environ, "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db", "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr  # a loss is a warning in the log


def test_the_page_of_examples_lists_them_all() -> None:
    assert sorted(links(EXAMPLES / "README.md")) == [program.name for program in PROGRAMS]
