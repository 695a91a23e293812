"""A coroutine without a loop: run to its end in one step, or refused."""

from __future__ import annotations

import asyncio

import pytest

from interlock._core.drive import drive


def test_what_never_suspends_runs_to_its_end() -> None:
    async def deeper() -> int:
        return 40

    async def answer() -> int:
        return await deeper() + 2

    assert drive(answer()) == 42


def test_what_suspends_is_an_error_and_not_none() -> None:
    ended: list[str] = []

    async def suspend() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append("cleaned up")

    with pytest.raises(RuntimeError, match="suspended"):
        drive(suspend())
    assert ended == ["cleaned up"]


def test_what_it_raises_is_raised() -> None:
    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        drive(fail())
