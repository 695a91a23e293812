"""What running once promises: one runs, the others skip without waiting, and know who has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock import events
from interlock.errors import Skipped
from interlock.testing.conformance.face import got, refused, within
from interlock.testing.conformance.suite import Suite


class Once(Suite):
    """`once`."""

    def over(self, once: Any, body: Callable[[], Any]) -> Callable[[], Any]:
        """A function of this face's kind under `once`."""

        async def later() -> Any:
            return await got(body())

        return once(later) if self.face.asynchronous else once(lambda: body())  # type: ignore[no-any-return]

    async def test_one_runs_and_the_others_skip_and_know_who_has_it(self) -> None:
        heard = list[events.Event]()
        client, other = self.client(), self.client(listener=heard.append)
        second = self.over(other.once(self.name), lambda: "ran")
        first = self.over(client.once(self.name), second)
        skipped = await got(first())
        assert isinstance(skipped, Skipped)
        assert not skipped
        assert skipped.resource == self.name
        assert skipped.holder is not None
        assert skipped.holder.token > 0
        assert "pid" in str(skipped)
        assert [event.holder for event in heard if isinstance(event, events.Skipped)] == [skipped.holder]
        assert not [event for event in heard if isinstance(event, events.TimedOut)]  # it has not waited
        await self.standing(client, 0, 0)
        assert await got(second()) == "ran"

    async def test_a_body_never_runs_beside_another(self) -> None:
        client = self.client()

        async def enter() -> None:
            async with within(client.once(self.name)):
                raise AssertionError("the body ran")

        async with within(client.once(self.name)) as lease:
            error = await refused(Skipped, enter)
        assert error.holder is not None
        assert error.holder.token == lease.token
        async with within(client.once(self.name)) as again:
            assert again.token > lease.token

    async def test_late_workers_skip_also_after_a_failure(self) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        client, other = self.client(), self.client()
        run = self.over(client.once(self.name, min_hold=30), fail)
        await refused(ZeroDivisionError, run)
        skipped = await got(self.over(other.once(self.name), lambda: "ran")())
        assert isinstance(skipped, Skipped)
        assert skipped.holder is not None
        await got(client.evict(self.name, reason="the test is over"))
        assert await got(self.over(other.once(self.name), lambda: "ran")()) == "ran"
