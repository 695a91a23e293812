"""`python3 dev.py` is the one place to find a command, and says what it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT


def dev(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "dev.py", *args], capture_output=True, text=True, timeout=60
    )


def test_alone_it_lists_every_command_with_a_sentence() -> None:
    told = dev()
    assert told.returncode == 0
    listed = {line.split()[0]: line.split(None, 1)[1] for line in told.stdout.splitlines()[2:]}
    assert {"demo", "test", "lint", "types", "sim", "mutants", "bench", "surface", "clean"} <= set(listed)
    assert all(sentence.endswith(".") for sentence in listed.values())


def test_an_unknown_command_is_a_usage_error() -> None:
    told = dev("tset")
    assert told.returncode == 64
    assert "test" in told.stdout


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="would make an environment for another python")
def test_a_made_environment_is_used_as_it_is() -> None:
    told = dev("lint", "--help")
    assert told.returncode == 0, told.stderr
    assert "Usage: ruff check" in told.stdout
    assert "making the environment" not in told.stdout
