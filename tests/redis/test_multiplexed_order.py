"""Requests leave a shared connection in the order in which they were made: their replies are matched in that order."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.backends.redis.errors import unreachable
from interlock.backends.redis.transport.multiplexed import MultiplexedConnection
from interlock.errors import StoreUnavailable


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.aborted = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_extra_info(self, name: str) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def test_no_request_overtakes_another_and_those_of_one_turn_leave_together() -> None:
    async def play() -> None:
        wire = Wire()
        raw: Any = SimpleNamespace(_writer=SimpleNamespace(transport=wire))
        connection = MultiplexedConnection("somewhere", asyncio.get_running_loop(), raw)
        asked = [connection.ask(word, 5.0) for word in (b"a", b"b", b"c", b"d")]
        assert wire.writes == [b"a"], "the first leaves at once"
        await asyncio.sleep(0)
        assert wire.writes == [b"a", b"bcd"]
        connection.data_received(b":1\r\n:2\r\n")
        asked.append(connection.ask(b"e", 5.0))
        assert wire.writes == [b"a", b"bcd"], "two are still on their way"
        await asyncio.sleep(0)
        connection.data_received(b":3\r\n:4\r\n:5\r\n")
        assert [await reply for reply in asked] == [1, 2, 3, 4, 5]
        connection._sweep()  # no timer is left behind
        connection.ask(b"f", 5.0).cancel()
        assert wire.writes == [b"a", b"bcd", b"e", b"f"], "alone again, it leaves at once"
        connection._fail_all(unreachable("somewhere", "the test is over"))

    asyncio.run(play())


def test_a_reply_for_a_task_that_was_cancelled_leaves_the_others_theirs() -> None:
    async def play() -> None:
        raw: Any = SimpleNamespace(_writer=SimpleNamespace(transport=Wire()))
        connection = MultiplexedConnection("somewhere", asyncio.get_running_loop(), raw)
        cancelled, waiting = connection.ask(b"a", 5.0), connection.ask(b"b", 5.0)
        cancelled.cancel()
        connection.data_received(b":1\r\n:2\r\n")
        assert await waiting == 2
        connection._sweep()

    asyncio.run(play())


def test_a_task_that_is_resumed_asks_in_the_same_turn_and_in_order() -> None:
    """Each of several tasks asks again as soon as it has its reply: the requests leave together, and the replies fit."""

    async def play() -> None:
        wire = Wire()
        raw: Any = SimpleNamespace(_writer=SimpleNamespace(transport=wire))
        loop = asyncio.get_running_loop()
        connection = MultiplexedConnection("somewhere", loop, raw)

        async def asks(name: bytes) -> list[Any]:
            return [await connection.ask(name + word, 5.0) for word in (b"1", b"2")]

        tasks = [asyncio.create_task(asks(name)) for name in (b"a", b"b", b"c")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.writes == [b"a1", b"b1c1"]
        loop.call_soon(connection.data_received, b":1\r\n:2\r\n:3\r\n")  # as the loop does: in no task
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.writes == [b"a1", b"b1c1", b"a2b2c2"]
        loop.call_soon(connection.data_received, b":4\r\n:5\r\n:6\r\n")
        assert await asyncio.gather(*tasks) == [[1, 4], [2, 5], [3, 6]]
        connection._sweep()

    asyncio.run(play())


class Interrupted(deque[Any]):
    """Ctrl-C strikes when the second reply is to be matched with its request."""

    taken = 0

    def popleft(self) -> Any:
        self.taken += 1
        if self.taken == 2:
            raise KeyboardInterrupt
        return super().popleft()


def test_an_interrupt_between_a_reply_and_its_request_gives_nobody_the_reply_of_another() -> None:
    """It did: from then on each request got the answer to the one before it."""

    async def play() -> None:
        wire = Wire()
        raw: Any = SimpleNamespace(_writer=SimpleNamespace(transport=wire), _reader=None)
        connection = MultiplexedConnection("somewhere", asyncio.get_running_loop(), raw)
        connection._pending = Interrupted()
        asked = [connection.ask(word, 5.0) for word in (b"a", b"b", b"c")]
        with pytest.raises(KeyboardInterrupt):
            connection.data_received(b":1\r\n:2\r\n:3\r\n")
        assert await asked[0] == 1
        for reply in asked[1:]:
            with pytest.raises(StoreUnavailable, match="interrupted"):
                await reply
        assert wire.aborted
        assert not connection.usable

    asyncio.run(play())
