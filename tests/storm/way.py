"""A way to one server that can be broken in each direction, without the server's or the client's help.

mute       requests are lost, replies would pass
deaf       requests arrive, their replies are lost
hole       both are lost; connections look open to either side
half_open  the server has closed every connection, the clients are not told; new ones are a hole
cut        every connection is reset, and new ones are
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

Mode = Literal["pass", "mute", "deaf", "hole", "half_open", "late", "cut"]
LATE = 0.4  # seconds a piece may be late
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: the other side gets a reset


class _Loop:
    """One event loop on a thread for all ways of this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True, name="ways").start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10.0)


_loops: list[_Loop] = []


class Way:
    """Listens on a port of its own and passes bytes on to `port`."""

    def __init__(self, port: int) -> None:
        if not _loops:
            _loops.append(_Loop())
        self._loop = _loops[0]
        self._target = port
        self._mode: Mode = "pass"
        self._chance = random.Random(port)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        self._server: asyncio.Server = self._loop.run(self._listen(listening))

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self._accept, sock=listening)

    def set(self, mode: Mode) -> None:
        """From now on, for connections that are open and for new ones. To heal resets what was broken."""
        self._loop.run(self._set(mode))

    async def _set(self, mode: Mode) -> None:
        before, self._mode = self._mode, mode
        if mode == "cut" or (mode == "pass" and before not in ("pass", "late")):
            for pair in list(self._pairs):
                _reset(*pair)
        elif mode == "half_open":
            for _, server in list(self._pairs):
                server.transport.abort()

    def choose_target(self) -> int:
        """The port to which a new connection goes."""
        return self._target

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            _reset(writer)
            return
        try:
            up, down = await asyncio.open_connection("127.0.0.1", self.choose_target())
        except OSError:
            _reset(writer)
            return
        pair = (writer, down)
        self._pairs.add(pair)
        pumps = [
            asyncio.ensure_future(self._pump(reader, down, "mute")),
            asyncio.ensure_future(self._pump(up, writer, "deaf")),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        while self._mode == "half_open":  # the client must not hear that the server has gone
            await asyncio.sleep(0.01)
        _reset(*pair)
        self._pairs.discard(pair)
        await asyncio.wait(pumps)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, loses: Mode) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if self._mode in (loses, "hole", "half_open"):
                    continue
                if self._mode == "late":
                    await asyncio.sleep(self._chance.uniform(0.0, LATE))
                target.write(data)
                await target.drain()

    def close(self) -> None:
        self._loop.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        self._mode = "cut"
        for pair in list(self._pairs):
            _reset(*pair)
        await asyncio.sleep(0)


def _reset(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
