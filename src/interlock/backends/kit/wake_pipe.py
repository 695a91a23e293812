"""Wakes a thread that polls file descriptors: a server's subscription, or the doorbell of SQLite."""

from __future__ import annotations

import socket

from interlock._support import standard_streams


class WakePipe:
    """Wakes a thread that polls it, from any other thread (the self-pipe trick)."""

    def __init__(self) -> None:
        standard_streams.occupy()
        self._out, self._in = socket.socketpair()
        self._out.setblocking(False)
        self._in.setblocking(False)

    def fileno(self) -> int:
        return self._out.fileno()

    def wake(self) -> None:
        try:
            self._in.send(b"!")
        except OSError:
            pass  # it is full, so the thread wakes anyway; or it is closed

    def clear(self) -> None:
        try:
            self._out.recv(64)
        except OSError:
            pass  # there was nothing to clear

    def close(self) -> None:
        self._out.close()
        self._in.close()
