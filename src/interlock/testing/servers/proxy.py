"""A proxy in front of a server: it passes requests and replies on, delays or drops them, or cuts the
connection.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy:
    """Passes bytes on. `holed`: nothing arrives any more, either way; `cuts`: so many replies end their
    connection.

    `delays`: so many requests are kept until `deliver`, also if their sender has hung up meanwhile; and
    what follows them on their connection.

    With a `trip`, seconds, the server is that far away: to connect takes one round trip, and so does every
    answer.
    """

    def __init__(self, port: int, trip: float = 0.0) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.trip = trip
        self.holed = False
        self.cuts = 0
        self.delays = 0
        self.late: list[tuple[socket.socket, bytes]] = []
        self.accepted = 0
        self._open: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, prefix: str = "") -> str:
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            server = socket.create_connection(("127.0.0.1", self._server))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            # The system has answered the client's SYN at once: what it sends first makes up for that.
            self._start(client, server, False, 1.5 * self.trip)
            self._start(server, client, True, 0.0)

    def _start(self, source: socket.socket, target: socket.socket, replies: bool, late: float) -> None:
        if not self.trip:
            threading.Thread(target=self._pass, args=(source, target, replies), daemon=True).start()
            return
        delayed: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        not_before = time.monotonic() + late
        threading.Thread(target=self._read, args=(source, delayed, not_before), daemon=True).start()
        threading.Thread(target=self._write, args=(delayed, source, target, replies), daemon=True).start()

    def _read(
        self, source: socket.socket, delayed: queue.SimpleQueue[tuple[float, bytes]], not_before: float
    ) -> None:
        data = b"first"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            delayed.put((max(not_before, time.monotonic() + self.trip / 2), data))

    def _write(
        self,
        delayed: queue.SimpleQueue[tuple[float, bytes]],
        source: socket.socket,
        target: socket.socket,
        replies: bool,
    ) -> None:
        try:
            while True:
                when, data = delayed.get()
                if not data or (replies and self._cut()):
                    break
                time.sleep(max(0.0, when - time.monotonic()))
                if not self.holed:
                    target.sendall(data)
        except OSError:
            pass
        self._end(source, target)

    def _pass(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        try:
            while data := source.recv(65536):
                if replies and self._cut():
                    break
                if not replies and (self.delays > 0 or self._kept_for(target)):
                    self.delays -= not self._kept_for(target)
                    self.late.append((target, data))
                elif not self.holed:
                    target.sendall(data)
        except OSError:
            pass
        late = {target for target, _ in self.late}
        self._end(*({source, target} - late))

    def _kept_for(self, target: socket.socket) -> bool:
        """Whether something is kept for a connection: what is sent there later cannot overtake it."""
        return any(kept is target for kept, _ in self.late)

    def deliver(self) -> None:
        """What was kept arrives, and is answered."""
        late, self.late = self.late, []
        for target, data in late:
            target.sendall(data)

    def _cut(self) -> bool:
        if self.cuts > 0:
            self.cuts -= 1
            return True
        return False

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut_all(self) -> None:
        """End every connection there is; new ones pass."""
        self._end(*self._open[1:])

    def close(self) -> None:
        self._end(*self._open)
        for end in self._open:
            end.close()


@contextmanager
def proxied(port: int, trip: float = 0.0) -> Iterator[Proxy]:
    proxy = Proxy(port, trip)
    try:
        yield proxy
    finally:
        proxy.close()
