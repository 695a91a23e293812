"""The answer to a write is lost after it was applied, and another client writes before it is repeated: done once, or nobody knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

from interlock._core.runtime import Runtime
from interlock.errors import StoreUnavailable
from interlock.store import Store
from interlock.testing.conformance import Suite, got, refused
from interlock.testing.conformance.face import ask
from tests.field.tap import Tap

Meanwhile = Callable[[], Awaitable[object]]


class Lossy(Tap):
    """Loses the answer to the next write of a register, and has something else happen before it says so."""

    meanwhile: Meanwhile | None = None

    def __init__(self, store: Store, runtime: Runtime) -> None:
        super().__init__(store, runtime, lambda *call: None)

    async def compare_and_set(self, *args: Any) -> Any:
        answer = await self._store.compare_and_set(*args)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is None:
            return answer
        await meanwhile()
        raise StoreUnavailable("the answer was lost")


class Repeating(Suite):
    """What is built on registers is changed once by each call, or the call says that nobody knows."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    def prepare(self) -> None:
        self.links: list[Lossy] = []
        self.ours = self.client(wrap=self._lossy)
        self.theirs = self.client()

    def _lossy(self, store: Store, runtime: Runtime) -> Store:
        self.links.append(Lossy(store, runtime))
        return cast(Store, self.links[-1])

    async def lost(self, change: Callable[[], Any], meanwhile: Meanwhile) -> None:
        """The change is applied, then `meanwhile` happens, then it is repeated."""
        for link in self.links:
            link.meanwhile = meanwhile
        error = await refused(StoreUnavailable, change)
        assert "may have been applied" in str(error)

    async def test_an_update_counts_once(self) -> None:
        ours, theirs = self.ours.register(self.name), self.theirs.register(self.name)

        def one_more(value: Any) -> Any:
            return (value or 0) + 1

        await self.lost(lambda: ours.update(one_more), lambda: got(theirs.update(one_more)))
        assert (await got(theirs.read())).value == 2

    async def test_a_write_is_not_refused_when_it_may_have_been_applied(self) -> None:
        ours, theirs = self.ours.register(self.name), self.theirs.register(self.name)

        async def write() -> None:
            await got(theirs.compare_and_set(await got(theirs.read()), "theirs"))

        await self.lost(lambda: ours.compare_and_set(0, "ours"), write)
        assert (await got(theirs.read())).value == "theirs"

    async def test_a_latch_is_counted_down_once(self) -> None:
        ours, theirs = self.ours.latch(self.name, 3), self.theirs.latch(self.name, 3)
        await self.lost(ours.count_down, lambda: got(theirs.count_down()))
        assert await got(theirs.count()) == 1

    async def test_a_reset_takes_back_nothing_that_was_counted_down_after_it(self) -> None:
        ours, theirs = self.ours.latch(self.name, 3), self.theirs.latch(self.name, 3)
        await got(theirs.count_down(3))
        await self.lost(ours.reset, lambda: got(theirs.count_down()))
        assert await got(theirs.count()) == 2

    async def test_clearing_an_event_does_not_undo_what_was_set_after_it(self) -> None:
        ours, theirs = self.ours.event(self.name), self.theirs.event(self.name)
        await got(theirs.set())
        await self.lost(ours.clear, lambda: got(theirs.set()))
        assert await got(theirs.is_set())

    async def test_setting_an_event_does_not_undo_what_was_cleared_after_it(self) -> None:
        ours, theirs = self.ours.event(self.name), self.theirs.event(self.name)
        await self.lost(ours.set, lambda: got(theirs.clear()))
        assert not await got(theirs.is_set())

    async def test_an_abort_does_not_break_what_was_reset_after_it(self) -> None:
        ours, theirs = self.ours.barrier(self.name, 2), self.theirs.barrier(self.name, 2)
        await self.lost(ours.abort, lambda: got(theirs.reset()))
        assert not await ask(theirs, "broken")

    async def test_a_reset_does_not_mend_what_was_aborted_after_it(self) -> None:
        ours, theirs = self.ours.barrier(self.name, 2), self.theirs.barrier(self.name, 2)
        await got(theirs.abort())
        await self.lost(ours.reset, lambda: got(theirs.abort()))
        assert await ask(theirs, "broken")
