"""The environment of a program that a test starts."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """That of this process; what can be imported here can be imported there."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
