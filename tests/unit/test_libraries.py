"""A client library that is not installed: the error says what to install, and pip finds it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tomllib

import pytest

from interlock.backends.kit import libraries
from tests.house.source import ROOT, SRC

WITHOUT = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
import interlock
try:
    interlock.connect({url!r}).lock("x").acquire(timeout=1)
except interlock.StoreUnfit as error:
    print(error)
"""

STORES = {
    "redis": ("redis://127.0.0.1:{port}", ["redis", "valkey"]),
    "etcd": ("etcd://127.0.0.1:{port}", ["hpack"]),
    "zookeeper": ("zookeeper://127.0.0.1:{port}", ["kazoo"]),
    "postgresql": ("postgresql://127.0.0.1:{port}/x", ["psycopg"]),
    "mysql": ("mysql://127.0.0.1:{port}/x", ["pymysql"]),
}


def extra(name: str) -> list[str]:
    """The packages of an extra, without versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.split("[<>=]", package)[0] for package in project["optional-dependencies"][name]]


@pytest.mark.parametrize("store", STORES)
def test_the_error_names_packages_that_an_index_has(store: str) -> None:
    """Not `interlock[redis]`: interlock may come from a clone."""
    url, modules = STORES[store]
    with socket.create_server(("127.0.0.1", 0)) as mute:  # etcd's is needed once a server has been reached
        url = url.format(port=mute.getsockname()[1])
        told = subprocess.run(
            [sys.executable, "-c", WITHOUT.format(url=url, modules=modules)],
            env={"PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    sentence, command = told.stdout.strip().split("; install it: pip install ")
    assert sentence.startswith("a store on "), told.stderr
    packages = [re.split("[<>=]", word.strip("'"))[0] for word in command.split()]
    assert sorted(map(str.lower, packages)) == sorted(map(str.lower, extra(store)))


def test_it_names_them_also_where_interlock_itself_was_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_required", lambda extra: [])
    error = libraries.missing("Redis", "redis-py", "redis", "redis", "hiredis")
    assert str(error).endswith("pip install 'redis' 'hiredis'")
