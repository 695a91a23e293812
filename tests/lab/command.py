"""`interlock lab` as tests call it."""

from __future__ import annotations

import subprocess
import sys

from tests.environment import environment


def lab(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "interlock", "lab", *words]
    env = {**environment(), "LANG": "C.UTF-8", **variables}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
