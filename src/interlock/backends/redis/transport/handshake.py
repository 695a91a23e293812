"""A few words with a server before its connection is used: written once, for threads and for tasks.

For what is asked rarely, when a connection is made. The hot path has leaves of its own (`pool`, `link`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from interlock.backends.redis.address import Address
from interlock.errors import InterlockError

T = TypeVar("T")
Ask = Callable[[float], Coroutine[Any, Any, T]]
"""Asks one of several, in the seconds it is given."""

LEAST = 1.5  # seconds that connecting may take, however quick it was before
AGAIN = 3  # times what it took before is what it may take again


class Handshake(Protocol):
    """Opens a connection, asks on it, closes it; each answers or raises within its time."""

    async def connect(self, address: Address, timeout: float) -> Any: ...
    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any: ...
    async def close(self, connection: Any) -> None: ...


class BlockingHandshake:
    """Blocks: nothing here ever suspends, see `stepped`."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return address.connect(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        try:
            connection._sock.settimeout(timeout)  # not what was left when it was opened
            connection.send_command(*words)
            return connection.read_response()
        except Exception as error:
            raise address._error_for(error, timeout) from None

    async def close(self, connection: Any) -> None:
        connection.disconnect()


class AsyncHandshake:
    """Awaits."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return await address.connect_async(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        import asyncio

        try:
            await connection.send_command(*words)
            return await asyncio.wait_for(connection.read_response(), timeout)
        except Exception as error:
            raise address._error_for(error, timeout) from None

    async def close(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)


def stepped(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends from end to end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking dialogue suspended")


class ConnectPace:
    """How long it takes to reach servers here, as far as is known: that tells the far from the dead."""

    def __init__(self, limit: float) -> None:
        self._limit = limit  # seconds that connecting may take
        self._took: float | None = None

    def reached(self, began: float) -> None:
        """One was reached that was called at that time."""
        self._took = time.monotonic() - began

    @property
    def limit(self) -> float:
        """Seconds that connecting may take: all it has at first; later no more than it should need."""
        return self._limit if self._took is None else min(self._limit, max(LEAST, AGAIN * self._took))

    def share(self, least: float) -> float:
        """Seconds that one of several may take before the others are asked."""
        return max(least, AGAIN * (self._took or 0.0))


async def one_then_all(
    handshake: Handshake, asks: Sequence[Ask[T]], enough: int, share: float, until: float
) -> tuple[list[T], list[tuple[int, InterlockError]]]:
    """The answers, `enough` of them if that many come, and the errors by the numbers of those that were asked.

    They are asked one after the other: most answer at once. When one takes longer than its share, all are far away, or
    that one is dead: then it and the others are asked together, for as long as there is time.
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
    """Ask all at once. Once one has answered, the others have as long again."""
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
    """Each ask on a thread of its own; those that nobody waits for any more end by themselves."""

    def __init__(self, asks: Sequence[Ask[Any]], timeout: float) -> None:
        self._outcomes: queue.SimpleQueue[tuple[int, Any, InterlockError | None]] = queue.SimpleQueue()
        for number, ask in enumerate(asks):
            thread = threading.Thread(
                target=self._run, args=(number, ask, timeout), name="interlock-connect", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no threads are to be had: one after the other, then
                self._run(number, ask, timeout)

    def _run(self, number: int, ask: Ask[Any], timeout: float) -> None:
        try:
            self._outcomes.put((number, stepped(ask(timeout)), None))
        except InterlockError as error:
            self._outcomes.put((number, None, error))

    async def next(self, timeout: float) -> tuple[int, Any, InterlockError | None] | None:
        try:
            return self._outcomes.get(timeout=timeout)
        except queue.Empty:
            return None

    def leave(self) -> None:
        """Nobody waits for the others."""


class _OnTasks:
    """Each ask in a task of its own; those that nobody waits for any more are cancelled."""

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
