"""Run once: the first worker runs it, and the others skip, quietly as a decorator and by an error in a `with`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

import interlock
from interlock import Skipped, aio, events
from tests.patience import PATIENCE


@pytest.fixture
def client() -> Iterator[interlock.Client]:
    with interlock.connect("memory://once") as client:
        yield client


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "interlock")
    return caplog


def test_whoever_comes_second_skips_and_is_told_by_whom(
    client: interlock.Client, lines: pytest.LogCaptureFixture
) -> None:
    @client.once("report")
    def report() -> str:
        """Counts."""
        inner.append(again())
        return "counted"

    @client.once("report")
    def again() -> str:
        raise AssertionError("it runs already")

    inner: list[str | Skipped] = []
    assert report() == "counted"
    (skipped,) = inner
    assert not skipped
    assert isinstance(skipped, Skipped)
    assert skipped.resource == "report"
    assert skipped.holder is not None
    assert "test_once.py" in str(skipped)
    assert [(record.levelname, record.getMessage()) for record in lines.records] == [("INFO", str(skipped))]
    assert str(skipped).startswith("report: skipped; taken ")
    assert f"token {skipped.holder.token}" in str(skipped)
    assert (report.__name__, report.__doc__) == ("report", "Counts.")
    assert not client.inspect("report").standings


def test_a_with_raises_because_it_cannot_skip_its_body(
    client: interlock.Client, lines: pytest.LogCaptureFixture
) -> None:
    with client.once("report") as lease:
        assert lease.remaining() > 0
        with pytest.raises(Skipped) as told, client.once("report"):
            raise AssertionError("it runs already")
        with suppress(Skipped), client.once("report"):
            raise AssertionError("it runs already")
    assert told.value.holder is not None
    assert told.value.holder.token == lease.token
    assert len(lines.records) == 2
    with client.once("report"):
        pass


def test_one_object_serves_threads_and_repeated_runs(client: interlock.Client) -> None:
    once, inside, go = client.once("report"), threading.Event(), threading.Event()
    ran: list[int] = []

    @once
    def report(number: int) -> int:
        ran.append(number)
        inside.set()
        assert go.wait(PATIENCE)
        return number

    with ThreadPoolExecutor() as pool:
        first = pool.submit(report, 1)
        assert inside.wait(PATIENCE)
        assert not report(2)
        with pytest.raises(Skipped), once:
            pass
        go.set()
        assert first.result() == 1
    assert report(3) == 3
    assert ran == [1, 3]


def test_an_error_of_a_with_leaves_a_pool_of_threads_as_an_error(client: interlock.Client) -> None:
    """concurrent.futures of Python 3.11 and 3.12 loses errors that are false."""

    def job() -> None:
        with client.once("report"):
            raise AssertionError("it runs already")

    with client.once("report"), ThreadPoolExecutor() as pool:
        with pytest.raises(Skipped):
            pool.submit(job).result()


def test_what_a_function_skips_inside_is_its_own_affair(client: interlock.Client) -> None:
    @client.once("outer")
    def outer() -> None:
        with client.once("inner"):
            raise AssertionError("it runs already")

    with client.once("inner"), pytest.raises(Skipped) as told:
        outer()
    assert told.value.resource == "inner"


class TestNames:
    def test_parts_of_the_name_come_from_the_arguments(self, client: interlock.Client) -> None:
        def names(order_id: int, *, day: str = "monday") -> list[str]:
            return list(client.scan())

        send = client.once("invoice:{order_id}:{day}")(names)
        assert send(7) == ["invoice:7:monday"]
        assert send(order_id=8, day="friday") == ["invoice:8:friday"]

    def test_different_arguments_do_not_exclude_each_other(self, client: interlock.Client) -> None:
        @client.once("invoice:{order_id}")
        def send(order_id: int, *more: int) -> Any:
            return [order_id, send(*more)] if more else order_id

        assert send(1, 2) == [1, 2]
        outer = send(1, 1)
        assert isinstance(outer, list)
        assert isinstance(outer[1], Skipped)

    def test_a_callable_makes_the_name_of_the_arguments(self, client: interlock.Client) -> None:
        def name(order: dict[str, str]) -> str:
            return "invoice:" + order["id"]

        @client.once(name)
        def send(order: dict[str, str]) -> list[str]:
            return list(client.scan())

        assert send({"id": "{7}"}) == ["invoice:{7}"]

    def test_attributes_items_and_formats_can_be_named(self, client: interlock.Client) -> None:
        class Shop:
            town = "Ulm"

            @client.once("{self.town}:{order[id]:04d}:{rest}")
            def send(self, order: dict[str, int], **more: str) -> list[str]:
                return list(client.scan())

        assert Shop().send({"id": 7}, rest="x") == ["Ulm:0007:x"]

    def test_braces_of_an_argument_and_doubled_ones_are_just_characters(
        self, client: interlock.Client
    ) -> None:
        @client.once("{{all}}:{text}")
        def send(text: str) -> list[str]:
            return list(client.scan())

        assert send("{x}") == ["{all}:{x}"]
        with client.once("{{all}}"):
            assert list(client.scan()) == ["{all}"]

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("invoice:{order}", r"has no parameter 'order'; it has order_id"),
            ("invoice:{}", "write the name of a parameter between the braces"),
            ("invoice:{0}", "write the name of a parameter between the braces"),
            ("invoice:{", "write {{ or }} for a brace that belongs to the name"),
            ("", "empty"),
        ],
    )
    def test_a_name_that_never_can_be_is_refused_before_the_first_call(
        self, client: interlock.Client, name: str, words: str
    ) -> None:
        with pytest.raises(interlock.InvalidName, match=words):

            @client.once(name)
            def send(order_id: int) -> None: ...

    def test_a_name_that_cannot_be_filled_in_is_refused(self, client: interlock.Client) -> None:
        @client.once("invoice:{order.id}")
        def send(order: Any) -> None: ...

        with pytest.raises(
            interlock.InvalidName, match=r"could not be filled in for a call of .*send: 'NoneType'"
        ):
            send(None)
        with pytest.raises(interlock.InvalidName, match="control character"):
            send(Mock(id="a\n"))

    def test_a_wrong_call_is_refused_as_python_would(self, client: interlock.Client) -> None:
        @client.once("invoice:{order_id}")
        def send(order_id: int) -> None: ...

        with pytest.raises(TypeError, match=r"send\(\) missing a required argument: 'order_id'"):
            send()  # type: ignore[call-arg]

    def test_a_with_has_no_arguments(self, client: interlock.Client) -> None:
        """Taken as it is, a name whose f was forgotten would be one lock for all orders, and most would be skipped."""
        with pytest.raises(interlock.InvalidName, match=r"\{order_id\} is filled in .* use an f-string"):
            with client.once("invoice:{order_id}"):
                pass
        with pytest.raises(TypeError, match="name it by a str"):
            with client.once(lambda: "x"):
                pass

    def test_it_needs_a_name(self, client: interlock.Client) -> None:
        nameless: Any = client.once
        with pytest.raises(TypeError, match="a name is a str"):
            nameless(7)

        @nameless
        def job(count: int) -> None: ...

        with pytest.raises(TypeError, match=r"client\.once takes a name"):
            job(7)


class TestKindsOfFunctions:
    def test_a_partial_and_a_method_run_once(self, client: interlock.Client) -> None:
        assert client.once("x")(partial(int, "7"))() == 7
        assert client.once("x")("abc".upper)() == "ABC"

    def test_static_and_class_methods_run_once(self, client: interlock.Client) -> None:
        class Jobs:
            @client.once("x")
            @staticmethod
            def plain(number: int) -> int:
                return number

            @client.once("x")
            @classmethod
            def of_class(cls) -> str:
                return cls.__name__

        assert Jobs().plain(7) == Jobs.plain(7) == 7
        assert Jobs().of_class() == Jobs.of_class() == "Jobs"

    def test_a_generator_cannot_be_skipped(self, client: interlock.Client) -> None:
        def steps() -> Iterator[int]:
            yield 1

        async def later() -> Any:
            yield 1

        for function, kind in ((steps, "a generator"), (later, "an async generator")):
            with pytest.raises(TypeError, match=f"is {kind} function, which a decorator cannot skip"):
                client.once("x")(function)
            with pytest.raises(TypeError, match=f"is {kind} function, which a decorator cannot skip"):
                aio.connect("memory://").once("x")(function)  # type: ignore[arg-type]

    def test_each_face_takes_its_own_kind(self, client: interlock.Client) -> None:
        async def later() -> None: ...

        with pytest.raises(TypeError, match="is a coroutine function"):
            client.once("x")(later)
        with pytest.raises(TypeError, match="is not a coroutine function"):
            aio.connect("memory://").once("x")(lambda: None)  # type: ignore[arg-type, return-value]


class TestMinHold:
    def test_late_workers_skip_though_it_is_over(self, client: interlock.Client) -> None:
        @client.once("report", min_hold=60)
        def report() -> int:
            return 1

        assert report() == 1
        assert not report()
        client.evict("report", reason="test")

    def test_late_workers_skip_though_it_has_failed(self, client: interlock.Client) -> None:
        @client.once("report", min_hold=60)
        def report() -> int:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            report()
        assert not report()
        client.evict("report", reason="test")
        with pytest.raises(ZeroDivisionError), client.once("report", min_hold=60):
            raise ZeroDivisionError
        with pytest.raises(Skipped), client.once("report"):
            pass
        client.evict("report", reason="test")

    def test_it_may_run_again_afterwards(self, client: interlock.Client) -> None:
        report = client.once("report", min_hold=0.2)(lambda: time.monotonic())
        began, again = report(), report()
        deadline = time.monotonic() + 30
        while isinstance(again, Skipped) and time.monotonic() < deadline:
            time.sleep(0.01)
            again = report()
        assert isinstance(began, float)
        assert isinstance(again, float)
        assert again - began > 0.15


def test_settings_are_checked_before_the_first_call(client: interlock.Client) -> None:
    with pytest.raises(interlock.InvalidSetting, match="min_hold must not exceed max_hold"):
        client.once("x:{y}", min_hold=5, max_hold=1)


def test_a_store_that_is_away_is_no_reason_to_skip() -> None:
    """Nobody knows whether another runs it: a job that is left out in silence would be worse than an error."""
    with interlock.connect("redis://127.0.0.1:1", connect_timeout=0.2) as client:
        with pytest.raises(interlock.StoreUnavailable):
            client.once("x")(lambda: 1)()


def test_the_async_face_does_the_same(lines: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with aio.connect("memory://once-async") as client:

            @client.once("invoice:{order_id}", min_hold=60)
            async def send(order_id: int) -> Any:
                return [await send(order_id), await twice()]

            @client.once("invoice:7")
            async def twice() -> None:
                raise AssertionError("it runs already")

            assert inspect.iscoroutinefunction(send)
            skipped: Any = await send(7)
            assert [str(one).partition(";")[0] for one in skipped] == ["invoice:7: skipped"] * 2
            assert not any(skipped)
            assert not await send(7)
            with pytest.raises(Skipped):
                async with client.once("invoice:7"):
                    raise AssertionError("it ran a moment ago")
            await client.evict("invoice:7", reason="test")
            async with client.once("invoice:7") as lease:
                assert lease.token
            assert repr(client.once("x")).startswith("<interlock.aio.Once 'x' at ")

    asyncio.run(main())
    assert len(lines.records) == 4


def test_a_listener_hears_of_it() -> None:
    heard: list[events.Event] = []
    with interlock.connect("memory://once-heard", listener=heard.append) as client, client.lock("x") as lease:
        assert not client.once("x")(lambda: 1)()
    (skipped,) = [event for event in heard if isinstance(event, events.Skipped)]
    assert skipped.holder is not None
    assert skipped.holder.token == lease.token


def test_a_skip_waits_for_nobody(client: interlock.Client) -> None:
    job: Callable[[], object] = client.once("x")(lambda: 1)
    with client.lock("x"):
        took = []
        for _ in range(20):
            began = time.monotonic()
            assert not job()
            took.append(time.monotonic() - began)
        assert min(took) < 0.05
        assert not client.inspect("x").waiters
