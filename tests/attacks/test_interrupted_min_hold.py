"""A job that was interrupted before its first line has not run: `min_hold` keeps nobody from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from interlock._core.drive import drive
from tests.attacks.stage import AsyncStage, Stage, eventually

LONG = 60.0


class Struck(BaseException):
    """As Ctrl-C, or a time limit."""


def struck_in(code: CodeType, call: Callable[[], object]) -> None:
    """Make a call that is interrupted before the first line of a function runs."""

    def strike(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            sys.setprofile(None)
            raise Struck

    sys.setprofile(strike)
    try:
        with pytest.raises(Struck):
            call()
    finally:
        sys.setprofile(None)


def test_a_job_that_was_interrupted_before_its_first_line_may_run_again() -> None:
    stage, ran = Stage(), list[int]()

    def job() -> None:
        ran.append(1)

    once = stage.client.once("x", min_hold=LONG)(job)
    struck_in(job.__code__, once)
    assert not ran
    assert not stage.client.inspect("x").standings
    once()
    assert ran
    assert stage.client.inspect("x").standings
    stage.client.close()


def test_an_async_job_that_was_interrupted_before_its_first_line_may_run_again() -> None:
    stage, ran = AsyncStage(), list[int]()

    async def job() -> None:
        ran.append(1)

    async def main() -> None:
        once = stage.client.once("x", min_hold=LONG)(job)

        def strike(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and frame.f_code is job.__code__:
                sys.setprofile(None)
                raise Struck

        sys.setprofile(strike)
        try:
            with pytest.raises(Struck):
                await once()
        finally:
            sys.setprofile(None)
        assert not ran
        assert not (await stage.client.inspect("x")).standings
        await stage.client.close()

    asyncio.run(main())


def test_a_job_that_fails_on_its_first_line_has_run() -> None:
    stage = Stage()

    def job() -> None:
        raise Struck

    once = stage.client.once("x", min_hold=LONG)(job)
    with pytest.raises(Struck):
        once()
    assert stage.client.inspect("x").standings
    stage.client.close()


def test_an_attempt_that_the_keeper_takes_back_does_not_linger() -> None:
    """It was interrupted inside a guard, where nothing can be asked of the store."""
    stage = Stage()
    attempt = stage.client.lock("x", min_hold=LONG)._core.attempt()
    assert drive(attempt.run()) is not None
    with stage.core.mutex:
        drive(attempt.undo())
    eventually(lambda: not stage.client.inspect("x").standings)
    stage.client.close()
