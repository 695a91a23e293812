"""Registers keep what was written, all of it, and say what they keep."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import aio
from tests.attacks.stage import fresh


def added(value: dict[str, int]) -> dict[str, int]:
    """Changes the value that it is given, and returns it."""
    value["n"] += 1
    return value


def test_a_function_that_changes_the_value_itself_loses_no_update() -> None:
    with interlock.connect(fresh()) as client:
        register = client.register("x")
        register.update(lambda _: {"n": 0})
        assert [register.update(added).value for _ in range(3)] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert register.read().value == {"n": 3}


def test_an_async_update_that_changes_the_value_itself_is_not_lost() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:
            register = client.register("x")
            await register.update(lambda _: {"n": 0})
            for _ in range(3):
                await register.update(added)
            assert (await register.read()).value == {"n": 3}

    asyncio.run(main())


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), ([1], [True])])
def test_values_that_are_equal_and_not_the_same_are_written(before: Any, after: Any) -> None:
    with interlock.connect(fresh()) as client:
        register = client.register("x")
        register.update(lambda _: before)
        register.update(lambda _: after)
        assert repr(register.read().value) == repr(after)


def test_an_update_to_the_same_value_writes_nothing() -> None:
    with interlock.connect(fresh()) as client:
        register = client.register("x")
        first = register.update(lambda _: {"n": [1, 2]})
        assert register.update(lambda value: dict(value)).version == first.version


def test_what_is_returned_is_what_everybody_reads() -> None:
    with interlock.connect(fresh()) as client:
        register = client.register("x")
        given = {1: ("a", "b")}
        written = register.compare_and_set(0, given)
        assert written is not None
        given[2] = ("c", "d")
        assert written.value == register.read().value == {"1": ["a", "b"]}
        assert register.update(lambda _: {2: (3,)}).value == register.read().value == {"2": [3]}


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {"x": [{None: 1, "null": 2}]}, {True: 1, "true": 2}])
def test_a_value_of_which_a_part_would_be_lost_is_refused(value: Any) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url) as client:
            with pytest.raises(interlock.InvalidSetting, match="two keys"):
                await client.register("x").compare_and_set(0, value)

    url = fresh()
    with interlock.connect(url) as client:
        register = client.register("x")
        with pytest.raises(interlock.InvalidSetting, match="two keys"):
            register.compare_and_set(0, value)
        with pytest.raises(interlock.InvalidSetting, match="two keys"):
            register.update(lambda _: value)
        asyncio.run(main(url))
        assert register.read().version == 0


def at_every_depth(call: Callable[[], object]) -> set[type[BaseException]]:
    """What the call raises, called with one frame less left each time."""
    raised: set[type[BaseException]] = set()

    def below(frames: int) -> None:
        if frames:
            below(frames - 1)
        else:
            call()

    def run() -> None:
        for frames in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
            try:
                below(frames)
            except BaseException as error:
                raised.add(type(error))

    thread = threading.Thread(target=run)  # whose stack is the same wherever the test runs
    thread.start()
    thread.join()
    return raised


@pytest.mark.filterwarnings("ignore:coroutine")  # the limit strikes before some of them are begun
def test_a_caller_near_the_recursion_limit_hears_that_and_no_word_of_the_value() -> None:
    with interlock.connect(fresh()) as client:
        event, register = client.event("e"), client.register("r")
        for call in (
            event.set,
            event.is_set,
            event.clear,
            register.read,
            lambda: register.update(lambda _: [1]),
        ):
            assert at_every_depth(call) <= {RecursionError}
            event.set()


def test_a_value_that_is_nested_too_deeply_is_refused_by_name() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    part_of_itself: list[Any] = []
    part_of_itself.append(part_of_itself)
    with interlock.connect(fresh()) as client:
        for value in (deep, part_of_itself):
            with pytest.raises(interlock.InvalidSetting):
                client.register("x").compare_and_set(0, value)
