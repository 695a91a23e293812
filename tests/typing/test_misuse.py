"""A type checker tells users of their mistakes: the annotations are precise, not merely present."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

MISUSE = Path(__file__).with_name("misuse.py")


def expected() -> dict[int, set[str]]:
    marks = re.compile(r"# error: (.+)$")
    lines = enumerate(MISUSE.read_text(encoding="utf-8").splitlines(), 1)
    return {number: set(found[1].split(", ")) for number, line in lines if (found := marks.search(line))}


@pytest.mark.timeout(300)
def test_mypy_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    """As for a stranger: strict, in a folder of their own, against the installed package."""
    try:
        distribution("interlock")
    except PackageNotFoundError:
        pytest.skip("needs interlock installed, as dev.py does")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    told = subprocess.run(
        [*command, "--config-file=", f"--cache-dir={tmp_path}", str(MISUSE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    found: defaultdict[int, set[str]] = defaultdict(set)
    for line, code in re.findall(r"misuse\.py:(\d+): error: .*\[([a-z-]+)\]$", told.stdout, re.MULTILINE):
        found[int(line)].add(code)
    assert dict(found) == expected(), told.stdout + told.stderr
