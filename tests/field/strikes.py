"""Runs the program whose calls are interrupted by signals, and counts what it leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.field.process import ENVIRONMENT

PROGRAM = Path(__file__).with_name("striking.py")


def struck(url: str, times: int, seed: int) -> tuple[int, int, int]:
    """How often it was struck, claims nobody knew of, and names still in the store after closing."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), url, str(times), str(seed)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    strikes, unknown, _, left = map(int, done.stdout.split())
    return strikes, unknown, left
