"""Runs the program of this folder that uses greenlets, on one of their libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.environment import environment


def program(library: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    pytest.importorskip(library, exc_type=ImportError)
    words = [sys.executable, "-m", "tests.redis.greenlets", library, *arguments]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=timeout)
