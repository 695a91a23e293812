"""Servers that all workers of a test run share: three servers for each of them would cost as much as the
tests that ask them.

The first worker that needs a kind of server starts this program. It starts the servers, and ends them when
no worker is left. No worker can own them, because workers end at different times. A lock of the file system
tells who is left: each worker holds it shared, and this program waits for it exclusively. The system takes
it back from a worker that is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir

from interlock.testing.patience import PATIENCE, until

KINDS = {
    "etcd": ("interlock.testing.servers.etcd", "EtcdCluster"),
    "zookeeper": ("interlock.testing.servers.zookeeper", "Ensemble"),
}
"""By kind, the class that starts such servers, names their `ports`, and closes them."""


def ports_of(kind: str) -> list[int]:
    """The ports of the servers of this run, started if need be; they live at least as long as this process
    does.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    return _join(kind, Path(gettempdir()) / f"interlock-{kind}-run-{run}")


def _join(kind: str, folder: Path) -> list[int]:
    while True:
        folder.mkdir(exist_ok=True)
        users = _locked(folder / "users", fcntl.LOCK_SH)  # until this process ends
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(users), os.stat(folder / "users")):
                break
        os.close(users)  # of servers that have just ended
    starting = _locked(folder / "starting", fcntl.LOCK_EX)
    try:
        ports = folder / "ports"
        if not ports.exists():
            _start(kind, folder, ports)
        found: list[int] = json.loads(ports.read_text())
        return found
    finally:
        os.close(starting)


def _locked(path: Path, how: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, how)
    return file


def _start(kind: str, folder: Path, ports: Path) -> None:
    with open(folder / "log", "ab") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "interlock.testing.servers.shared", kind, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the tests is not for it
        )
    until(lambda: ports.exists() or program.poll() is not None, 3 * PATIENCE)
    assert ports.exists(), (folder / "log").read_text()
    program.returncode = 0  # it outlives us, and nobody is to be warned of that


def main(kind: str, folder: Path) -> None:
    module, name = KINDS[kind]
    servers = getattr(import_module(module), name)()
    try:
        servers.start()
        written = folder / "ports.new"
        written.write_text(json.dumps(servers.ports))
        written.rename(folder / "ports")
        _locked(folder / "users", fcntl.LOCK_EX)  # nobody is left
    finally:
        servers.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
