"""A client that is closed while others release: their requests are carried out before the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import interlock.aio
from interlock.testing.servers.redis import Server, running
from interlock.testing.servers.redlock import say


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.mark.parametrize("closer", ["first", "last"])
def test_nothing_is_left_when_a_program_cancels_all_tasks_at_once(server: Server, closer: str) -> None:
    """As `asyncio.run` does at its end. The task with the client closed it while the releases of the others were on their way."""

    async def holds(client: interlock.aio.Client, number: int) -> None:
        async with client.lock(f"all-at-once-{number}"):
            await asyncio.sleep(60)

    async def main() -> None:
        async with interlock.aio.connect(server.url()) as client:
            tasks = [asyncio.create_task(holds(client, number)) for number in range(4)]
            while [say(server, "EXISTS", f"all-at-once-{number}") for number in range(4)] != [1] * 4:
                await asyncio.sleep(0.001)
            mine = asyncio.current_task()
            assert mine is not None
            order = [mine, *tasks] if closer == "first" else [*tasks, mine]
            asyncio.get_running_loop().call_later(0.1, lambda: [task.cancel() for task in order])
            await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert [say(server, "EXISTS", f"all-at-once-{number}") for number in range(4)] == [0] * 4
