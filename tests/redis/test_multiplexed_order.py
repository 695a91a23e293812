"""Requests leave a shared connection in the order in which they were made: their replies are matched in that order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from interlock.backends.redis.errors import unreachable
from interlock.backends.redis.transport.multiplexed import MultiplexedConnection


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...

    def write(self, data: bytes) -> None:
        self.writes.append(data)


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
