"""The lab and the servers can be imported where no client library and no pytest is installed."""

from __future__ import annotations

import subprocess
import sys

from tests.environment import environment
from tests.house.source import modules

ABSENT = ("redis", "kazoo", "hpack", "psycopg", "pymysql", "aiomysql", "sqlalchemy", "pytest", "hiredis")

PROGRAM = f"""
import sys
from importlib import import_module
for name in {ABSENT!r}:
    sys.modules[name] = None  # as if it were not installed
for name in sys.argv[1:]:
    import_module(name)
"""


def test_every_module_of_the_lab_imports_without_client_libraries() -> None:
    names = [f"interlock.{name}" for name in modules() if name.startswith("lab")]
    assert len(names) > 10
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
