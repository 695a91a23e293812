"""Questions to a server when a connection is made, written once for threads and for tasks.

The hot path does not come here: it uses the transports in `pool` and `multiplexed`.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from interlock._core.drive import drive
from interlock._support import native
from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import reply_error
from interlock.backends.redis.wire.resp import ErrorReply, check_size, command, reader
from interlock.errors import InterlockError

READ_BYTES = 16384

T = TypeVar("T")
Ask = Callable[[float], Coroutine[Any, Any, T]]
"""Asks one of several servers, within the seconds it is given."""


class Handshake(Protocol):
    """Opens a connection, asks questions on it, closes it; each step answers or raises within its timeout."""

    async def connect(self, address: Address, timeout: float) -> Any: ...
    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any: ...
    async def ask_several(
        self, address: Address, connection: Any, timeout: float, *commands: Sequence[bytes]
    ) -> list[Any]:
        """The replies to commands that are sent together.

        If the first is refused, that is raised; for the others None stands then.
        """
        ...

    async def close(self, connection: Any) -> None: ...


class BlockingHandshake:
    """The blocking form: nothing here ever suspends, see `drive`."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return address.connect(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        return (await self.ask_several(address, connection, timeout, words))[0]

    async def ask_several(
        self, address: Address, connection: Any, timeout: float, *commands: Sequence[bytes]
    ) -> list[Any]:
        sock, answer, until = connection._sock, _Answer(len(commands)), time.monotonic() + timeout
        try:
            # Otherwise it would keep the timeout that was left when it was opened.
            sock.settimeout(timeout)
            sock.sendall(b"".join([command(*words) for words in commands]))
            while not answer.complete:
                # Set again for each read: a server that sends one byte at a time must not exceed the whole
                # timeout.
                sock.settimeout(max(0.001, until - time.monotonic()))
                answer.feed(sock.recv(READ_BYTES))
        except Exception as error:
            raise address._error_for(error, timeout) from None
        return answer.replies(address.label)

    async def close(self, connection: Any) -> None:
        connection.disconnect()


class AsyncHandshake:
    """The asyncio form."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return await address.connect_async(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        return (await self.ask_several(address, connection, timeout, words))[0]

    async def ask_several(
        self, address: Address, connection: Any, timeout: float, *commands: Sequence[bytes]
    ) -> list[Any]:
        import asyncio

        answer = _Answer(len(commands))

        async def read() -> None:
            while not answer.complete:
                answer.feed(await connection._reader.read(READ_BYTES))

        try:
            connection._writer.write(b"".join([command(*words) for words in commands]))
            async with asyncio.timeout(timeout):
                await read()
        except Exception as error:
            raise address._error_for(error, timeout) from None
        return answer.replies(address.label)

    async def close(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)


class _Answer:
    """The replies to a few commands, parsed by our own reader, which has bounds, and not by the client
    library.
    """

    def __init__(self, count: int) -> None:
        self._reader = reader()
        self._replies: list[Any] = []
        self._count = count
        self._size = 0

    @property
    def complete(self) -> bool:
        return len(self._replies) == self._count

    def feed(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)
        while not self.complete and (reply := self._reader.gets()) is not False:
            self._replies.append(reply)
        self._size += len(data)
        check_size(self._size)

    def replies(self, label: str) -> list[Any]:
        """The replies; raises if the first command was refused, and has None for others that were."""
        if isinstance(first := self._replies[0], ErrorReply):
            raise reply_error(label, first)
        return [None if isinstance(reply, ErrorReply) else reply for reply in self._replies]


def info_lines(words: bytes) -> dict[bytes, bytes]:
    """The facts in the reply to `INFO`, by name."""
    return {name: value for name, _, value in (line.partition(b":") for line in words.splitlines())}


async def one_then_all(
    handshake: Handshake, asks: Sequence[Ask[T]], enough: int, share: float, until: float
) -> tuple[list[T], list[tuple[int, InterlockError]]]:
    """Up to `enough` answers, and the errors with the index of the server that caused each.

    The servers are asked one after the other, since most answer at once. If one takes longer than its share,
    either all are distant or that one is dead, so it and the rest are asked together for as long as there is
    time.
    """
    found: list[T] = []
    errors: list[tuple[int, InterlockError]] = []
    for number, ask in enumerate(asks):
        began = time.monotonic()
        left = until - began
        if len(found) >= enough or left <= 0:
            break
        time_for_it = max(0.001, min(share, left / 2))
        try:
            found.append(await ask(time_for_it))
        except InterlockError as error:
            errors.append((number, error))
            if not found and time.monotonic() - began >= 0.9 * time_for_it:
                numbers = [number, *range(number + 1, len(asks))]
                more, failed = await _together(handshake, [asks[n] for n in numbers], enough, until)
                return more, [*errors, *((numbers[n], error) for n, error in failed)]
    return found, errors


async def _together(
    handshake: Handshake, asks: Sequence[Ask[T]], enough: int, until: float
) -> tuple[list[T], list[tuple[int, InterlockError]]]:
    """Ask all at once. After the first answer the others have as long again."""
    left = max(0.001, until - time.monotonic())
    began = time.monotonic()
    asking = _OnTasks(asks, left) if isinstance(handshake, AsyncHandshake) else _OnThreads(asks, left)
    found: list[T] = []
    errors: list[tuple[int, InterlockError]] = []
    try:
        while len(found) < enough and len(found) + len(errors) < len(asks):
            outcome = await asking.next(max(0.0, until - time.monotonic()))
            if outcome is None:
                break
            number, answer, error = outcome
            if error is not None:
                errors.append((number, error))
            else:
                if not found:
                    until = min(until, time.monotonic() + (time.monotonic() - began))
                found.append(answer)
    finally:
        asking.leave()
    return found, errors


class _OnThreads:
    """Runs each question on a thread of its own; threads that nobody waits for end by themselves."""

    def __init__(self, asks: Sequence[Ask[Any]], timeout: float) -> None:
        self._outcomes: queue.SimpleQueue[tuple[int, Any, InterlockError | None]] = queue.SimpleQueue()
        for number, ask in enumerate(asks):
            thread = native.Thread(
                target=self._run, args=(number, ask, timeout), name="interlock-connect", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no thread can be started: ask one after the other
                self._run(number, ask, timeout)

    def _run(self, number: int, ask: Ask[Any], timeout: float) -> None:
        try:
            self._outcomes.put((number, drive(ask(timeout), nested=True), None))
        except InterlockError as error:
            self._outcomes.put((number, None, error))

    async def next(self, timeout: float) -> tuple[int, Any, InterlockError | None] | None:
        try:
            return self._outcomes.get(timeout=timeout)
        except queue.Empty:
            return None

    def leave(self) -> None:
        """Do nothing: the remaining threads end by themselves."""


class _OnTasks:
    """Runs each question in a task of its own; tasks that nobody waits for are cancelled."""

    def __init__(self, asks: Sequence[Ask[Any]], timeout: float) -> None:
        import asyncio

        self._tasks = {asyncio.ensure_future(ask(timeout)): number for number, ask in enumerate(asks)}

    async def next(self, timeout: float) -> tuple[int, Any, InterlockError | None] | None:
        import asyncio

        done, _ = await asyncio.wait(self._tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            number = self._tasks.pop(task)
            try:
                return number, task.result(), None
            except InterlockError as error:
                return number, None, error
        return None

    def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
