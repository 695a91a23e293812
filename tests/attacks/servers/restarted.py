"""A server that restarts ends no wait: not that for an event, a latch, a barrier or a register either."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._core import outage
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.proxy import Proxy
from tests.attacks.servers.site import Site
from tests.patience import PATIENCE, until

OUTAGE_S = 0.7  # seconds in which connections are refused
QUIET_S = 0.3  # seconds without a request, after which a waiter does nothing but wait

Wait = Callable[[Any], Any]


async def first_of(values: Any) -> Any:
    async for value in values:
        if value.value is not None:
            return value.value
    return None


def first(values: Any) -> Any:
    return next(value.value for value in values if value.value is not None)


WAITS: dict[str, tuple[Wait, Wait, Wait]] = {  # of a thread, of a task, and what ends them
    "event": (
        lambda client: client.event("x").wait(PATIENCE),
        lambda client: client.event("x").wait(PATIENCE),
        lambda other: other.event("x").set(),
    ),
    "latch": (
        lambda client: client.latch("x", 1).wait(PATIENCE),
        lambda client: client.latch("x", 1).wait(PATIENCE),
        lambda other: other.latch("x", 1).count_down(),
    ),
    "barrier": (
        lambda client: client.barrier("x", 2).wait(PATIENCE) in (0, 1),
        lambda client: client.barrier("x", 2).wait(PATIENCE),
        lambda other: other.barrier("x", 2).wait(PATIENCE),
    ),
    "register": (
        lambda client: first(client.register("x").watch(PATIENCE)),
        lambda client: first_of(client.register("x").watch(PATIENCE)),
        lambda other: other.register("x").compare_and_set(0, 1),
    ),
}


class Waiting(threading.Thread):
    """Waits in a thread, or in a task of its own loop, through a proxy."""

    def __init__(self, url: str, wait: Wait, is_async: bool) -> None:
        super().__init__(daemon=True)
        self._url, self._wait, self._is_async = url, wait, is_async
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._is_async:
                self.answer = asyncio.run(self._as_task())
            else:
                with interlock.connect(self._url) as client:
                    self.answer = self._wait(client)
        except BaseException as error:
            self.error = error

    async def _as_task(self) -> Any:
        async with aio.connect(self._url) as client:
            return await self._wait(client)


def await_quiet(proxy: Proxy) -> None:
    """Wait until clients have asked something, and then nothing for a while."""
    last = [0, time.monotonic()]

    def quiet() -> bool:
        passed, now = proxy.requests.passed, time.monotonic()
        if passed != last[0]:
            last[:] = [passed, now]
        return passed > 0 and now - last[1] > QUIET_S

    until(quiet)


class Restarted:
    """Each runs on every server; `site` is a fixture of the file that names the store."""

    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    @pytest.mark.parametrize("kind", list(WAITS))
    def test_a_wait_goes_on_when_its_server_restarts(self, site: Site, kind: str, is_async: bool) -> None:
        by_thread, by_task, end = WAITS[kind]
        url = site.url()
        with Proxy(site.port) as proxy, interlock.connect(url) as other:
            waiting = Waiting(site.through(url, proxy.port), by_task if is_async else by_thread, is_async)
            waiting.start()
            await_quiet(proxy)
            proxy.stop_listening()
            proxy.reset()
            waiting.join(OUTAGE_S)
            assert waiting.is_alive(), waiting.error
            proxy.listen()
            end(other)
            waiting.join(PATIENCE)
            assert waiting.error is None
            assert waiting.answer is not None
            assert waiting.answer is not False

    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_a_server_that_is_gone_ends_it(
        self, site: Site, is_async: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outage, "LONGEST_OUTAGE_S", stretched(0.5))
        url = site.url()
        with Proxy(site.port) as proxy:
            waiting = Waiting(site.through(url, proxy.port), WAITS["event"][is_async], is_async)
            waiting.start()
            await_quiet(proxy)
            proxy.stop_listening()
            proxy.reset()
            with at_most(stretched(8.0)):
                waiting.join(PATIENCE)
            assert isinstance(waiting.error, StoreUnavailable)
            with interlock.connect(site.through(url, proxy.port)) as client:  # one that it has never reached
                with at_most(stretched(5.0)), pytest.raises(StoreUnavailable):
                    client.event("x").wait(PATIENCE)
