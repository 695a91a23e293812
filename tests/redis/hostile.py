"""A server that logs everybody in as Redis does, and answers the commands of our choice with any bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from interlock.backends.redis.wire.resp import PlainReader

Answer = Callable[[list[bytes]], "bytes | Iterable[bytes] | None"]
"""What to answer to a command, in one piece or in several; None for what Redis would say at a login."""


class Hostile:
    """Listens on a free port, with a thread for each connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.sent = 0  # bytes
        self.asked: list[list[bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        reader = PlainReader()
        with accepted, suppress(OSError):
            while data := accepted.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    self.asked.append(command)
                    answer = self._answer(command)
                    for piece in (
                        [b"+OK\r\n"] if answer is None else [answer] if isinstance(answer, bytes) else answer
                    ):
                        accepted.sendall(piece)
                        self.sent += len(piece)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def serving(answer: Answer) -> Iterator[Hostile]:
    server = Hostile(answer)
    try:
        yield server
    finally:
        server.close()


def without_end(head: bytes, piece: bytes, most: int) -> Iterator[bytes]:
    """A head, and so many bytes after it that a client without bounds would fill its memory."""
    yield head
    for _ in range(most // len(piece)):
        yield piece
