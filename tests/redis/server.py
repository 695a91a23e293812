"""Real redis-servers for tests: each on a free port with a folder of its own, ended by its pid."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import mkdtemp
from typing import TypeVar

from tests.patience import PATIENCE
from tests.server_process import free_port, freeze, start_program, thaw


class Server:
    """One redis-server; `stop`, `restart` and signals are for tests that break it."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.folder = mkdtemp(prefix="interlock-redis-")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program, "redis-server is not installed: apt-get install redis-server"
        self._process = start_program(
            [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder),
                *("--save", "", "--enable-debug-command", "yes", "--unixsocket", f"{self.folder}/socket"),
                *self._options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await(self._answers)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, prefix: str = "", database: int = 0, **options: str) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/{database}?prefix={prefix}{query}"

    def kill(self) -> None:
        """As a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """From now on it reads nothing."""
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """A server that accepts connections and answers nothing."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64)[:5] in (b"+PONG", b"-NOAU")
        except OSError:
            return False

    def _await(self, fact: object) -> None:
        assert callable(fact)
        end = time.monotonic() + PATIENCE
        while not fact():
            assert self._process is not None
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < end, f"redis-server is not ready after {PATIENCE:g} s"
            time.sleep(0.005)


Some = TypeVar("Some", bound=Server)


@contextmanager
def started(server: Some) -> Iterator[Some]:
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def running(*options: str) -> Iterator[Server]:
    with started(Server(*options)) as server:
        yield server


@cache
def steady() -> Server:
    """The server for all suites of a worker, which neither break it nor count what it was asked."""
    server = Server()
    atexit.register(server.close)
    server.start()
    return server
