"""Real redis-servers for tests: each on a free port with a folder of its own, ended by its pid."""

from __future__ import annotations

import atexit
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import mkdtemp
from typing import TypeVar

from interlock.testing.servers.process import ServerProcess, find_program, free_port, start_program


class Server(ServerProcess):
    """One redis-server."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.folder = mkdtemp(prefix="interlock-redis-")
        self._options = options

    def start(self) -> None:
        program = find_program("redis-server", "redis-server")
        self._process = start_program(
            [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder),
                *("--save", "", "--enable-debug-command", "yes", "--unixsocket", f"{self.folder}/socket"),
                *self._options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_ready(self._answers)

    def url(self, prefix: str = "", database: int = 0, **options: str) -> str:
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/{database}?prefix={prefix}{query}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64)[:5] in (b"+PONG", b"-NOAU")
        except OSError:
            return False


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
