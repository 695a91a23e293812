"""Several independent redis-servers for tests of a quorum; broken one by one by those tests that break
them.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from interlock.backends.redis.wire.resp import command, reader
from interlock.testing.servers.redis import Server

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""For nodes that are restarted and forget nothing."""


class Servers:
    """The nodes of one quorum, and the URL that names them."""

    def __init__(self, count: int, *options: str) -> None:
        self.all: list[Server] = []
        while len(self.all) < count:
            server = Server(*options)
            if server.port in [other.port for other in self.all]:
                server.close()  # a port that is free is free for the next one, too, until somebody uses it
            else:
                self.all.append(server)

    def start(self) -> None:
        for server in self.all:
            server.start()

    def url(self, prefix: str = "", **options: object) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.all)
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redlock://{hosts}/0?prefix={prefix}{query}"

    def close(self) -> None:
        for server in self.all:
            server.close()

    def __getitem__(self, node: int) -> Server:
        return self.all[node]


@contextmanager
def quorum(count: int = 5, *options: str) -> Iterator[Servers]:
    servers = Servers(count, *options)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@cache
def steady(count: int = 5) -> Servers:
    """Servers for tests that break none; started by the first that needs them."""
    servers = Servers(count)
    atexit.register(servers.close)
    servers.start()
    return servers


def say(server: Server, *words: str | bytes) -> Any:
    """One command, as another program would send it."""
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    with socket.create_connection(("127.0.0.1", server.port), 5.0) as sock:
        sock.sendall(command(*parts))
        replies = reader()
        while (reply := replies.gets()) is False:
            replies.feed(sock.recv(65536))
        return reply
