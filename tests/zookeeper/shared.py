"""One ensemble for all workers of a test run: three servers cost as much as the tests that ask them.

The first worker that needs the ensemble starts this program. It starts the servers, and ends them when no worker is left. No worker can own
them, because workers end at different times. A lock of the file system tells who is left: each worker holds it shared, and this program waits
for it exclusively. The system takes it back from a worker that is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir

from tests.house.source import ROOT
from tests.zookeeper.ensemble import Ensemble, Servers, until


class Shared(Servers):
    """The servers that another program of this run has started."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    @property
    def ports(self) -> list[int]:
        return self._ports


@cache
def steady() -> Servers:
    """The ensemble for all suites of a run, which neither break it nor count what it was asked."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    return _join(Path(gettempdir()) / f"interlock-zookeeper-run-{run}")


def _join(place: Path) -> Servers:
    """The ensemble of this run, started if need be; it lives at least as long as this process does."""
    while True:
        place.mkdir(exist_ok=True)
        users = _locked(place / "users", fcntl.LOCK_SH)  # until this process ends
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(users), os.stat(place / "users")):
                break
        os.close(users)  # of an ensemble that has just ended
    starting = _locked(place / "starting", fcntl.LOCK_EX)
    try:
        ports = place / "ports"
        if not ports.exists():
            _start(place, ports)
        return Shared(json.loads(ports.read_text()))
    finally:
        os.close(starting)


def _locked(path: Path, how: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, how)
    return file


def _start(place: Path, ports: Path) -> None:
    with open(place / "log", "ab") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.zookeeper.shared", str(place)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the tests is not for it
        )
    until(lambda: ports.exists() or program.poll() is not None)
    assert ports.exists(), (place / "log").read_text()
    program.returncode = 0  # it outlives us, and nobody is to be warned of that


def main(place: Path) -> None:
    ensemble = Ensemble()
    try:
        ensemble.start()
        written = place / "ports.new"
        written.write_text(json.dumps(ensemble.ports))
        written.rename(place / "ports")
        _locked(place / "users", fcntl.LOCK_EX)  # nobody is left
    finally:
        ensemble.close()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
