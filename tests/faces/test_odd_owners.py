"""However a thread or a task is named, it can hold a lock, and an operator can read who does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import interlock
from interlock import aio
from tests.patience import PATIENCE

NAMES = ["bad\udc80name", "nul\x00inside", "ünïcödé 🔒", 'quo"te\\', "", "n" * 100_000]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_a_thread_of_any_name_can_hold_a_lock(tmp_path: Path, name: str) -> None:
    seen: list[str] = []

    def hold() -> None:
        with client.lock("x"):
            seen.append(str(interlock.Who.parse(client.inspect("x").holders[0].who)))

    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        thread = threading.Thread(target=hold, name=name)
        thread.start()
        thread.join(PATIENCE)
    assert "pid" in seen[0]
    seen[0].encode()


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_a_task_of_any_name_can_hold_a_lock(tmp_path: Path, name: str) -> None:
    async def hold() -> str:
        async with client.lock("x"):
            return str(interlock.Who.parse((await client.inspect("x")).holders[0].who))

    async def main() -> str:
        return await asyncio.create_task(hold(), name=name)

    client = aio.connect(f"sqlite:///{tmp_path}/locks.db")

    async def run() -> str:
        async with client:
            return await main()

    asyncio.run(run()).encode()
