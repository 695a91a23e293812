"""Every shell line of the README runs and succeeds, or stands below with the reason why it is not run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.house.source import ROOT, SRC

NOT_RUN = {
    "python3 dev.py test": "it is what runs this test",
    "python3 -m pip install .": "needs a package index for the build backend; tests/house/test_wheel.py builds the wheel",
}
QUICKER = {"python3 dev.py demo": "python3 dev.py demo --fast"}

LINES = [
    line for block in blocks(ROOT / "README.md", "sh") for line in block.text.splitlines() if line.strip()
]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the README's shell is POSIX")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As after an installation: python3 is this one, and the command `interlock` is on the path."""
    tools = {
        "python3": f'exec "{sys.executable}" "$@"',
        "interlock": f'exec "{sys.executable}" -m interlock "$@"',
    }
    for tool, line in tools.items():
        script = tmp_path / "bin" / tool
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(SRC),
        "INTERLOCK_URL": f"sqlite:///{tmp_path}/locks.db",
        "TMPDIR": str(tmp_path),
    }


@pytest.mark.parametrize("line", [line for line in LINES if line not in NOT_RUN])
def test_a_shell_line_of_the_readme_succeeds(line: str, environment: dict[str, str]) -> None:
    command = QUICKER.get(line, line)
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"


def test_every_exception_is_still_in_the_readme() -> None:
    assert set(NOT_RUN) | set(QUICKER) <= set(LINES)
