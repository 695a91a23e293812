"""At most two of six tasks use a slow service at the same time, on however many machines they run."""

import asyncio

from interlock import aio

busy = most = 0


async def call(client: aio.Client) -> None:
    global busy, most
    async with client.semaphore("service", capacity=2):
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.05)  # the service
        busy -= 1


async def main() -> None:
    async with aio.connect() as client, asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(call(client))
    assert most == 2
    print("six calls, never more than two at once")


asyncio.run(main())
