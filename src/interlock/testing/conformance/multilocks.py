"""What a multilock promises: all or none, under one timeout, and no deadlock by order."""

from __future__ import annotations

from functools import partial
from typing import Any

from interlock._core.states import State
from interlock.errors import AcquireTimeout, LeaseLost, NotHeld
from interlock.testing.conformance.face import PATIENCE, got, refused, within
from interlock.testing.conformance.suite import Suite
from interlock.testing.lag import at_most


class MultiLocks(Suite):
    """`multilock`."""

    def names(self, letters: str) -> list[str]:
        return [f"{self.name}-{letter}" for letter in letters]

    async def test_all_are_held_in_sorted_order_each_with_its_token(self) -> None:
        client = self.client()
        multi = client.multilock(self.names("cabca"))
        assert multi.names == self.names("abc")
        taken = await got(multi.acquire())
        assert [lease.resource for lease in taken.leases] == self.names("abc")
        assert list(taken.tokens) == self.names("abc")
        assert taken.remaining() > 0
        taken.check()
        assert multi.owned()
        for name in self.names("abc"):
            await self.standing(client, 1, 0, name)
        await got(taken.release())
        for name in self.names("abc"):
            await self.standing(client, 0, 0, name)

    async def test_if_one_cannot_be_had_none_is_held(self) -> None:
        client = self.client()
        blocker = client.lock(self.names("b")[0])
        await got(blocker.acquire())
        multi = client.multilock(self.names("abc"))
        assert await got(multi.acquire(blocking=False)) is None
        assert await got(multi.acquire(timeout=0.05)) is None
        for letter in "ac":
            await self.standing(client, 0, 0, *self.names(letter))
        await got(blocker.release())

    async def test_one_timeout_counts_for_all(self) -> None:
        client = self.client()
        blockers = [client.lock(name) for name in self.names("bc")]
        for blocker in blockers:
            await got(blocker.acquire())
        with at_most(0.2 + 0.25):
            assert await got(client.multilock(self.names("abc")).acquire(timeout=0.2)) is None
        for blocker in blockers:
            await got(blocker.release())

    async def test_a_body_never_runs_with_a_part(self) -> None:
        client = self.client()
        blocker = client.lock(self.names("b")[0])
        await got(blocker.acquire())

        async def enter() -> None:
            async with within(client.multilock(self.names("ab"), timeout=0.05)):
                raise AssertionError("the body ran")

        error = await refused(AcquireTimeout, enter)
        assert error.resource == self.names("b")[0]
        await got(blocker.release())
        async with within(client.multilock(self.names("ab"), timeout=PATIENCE)) as taken:
            taken.check()

    async def test_opposite_orders_do_not_deadlock(self) -> None:
        async def work(letters: str) -> None:
            multi = self.client().multilock(self.names(letters))
            for _ in range(8):
                async with within(multi):
                    await self.runtime.sleep(0)

        for actor in [self.spawn(partial(work, letters)) for letters in ("abc", "cba", "bca")]:
            await actor.result()

    async def test_the_loss_of_one_is_the_loss_of_all(self) -> None:
        client = self.client(ttl=3 * self.short)
        multi = client.multilock(self.names("ab"))
        taken = await got(multi.acquire())
        await got(client.evict(self.names("b")[0], reason="a drill"))
        await self.until(lambda: taken.leases[1].state is State.LOST)
        assert (await refused(LeaseLost, taken.check)).resource == self.names("b")[0]
        await refused(LeaseLost, taken.release)
        await self.standing(client, 0, 0, self.names("a")[0])

    async def test_releasing_what_is_not_held_is_refused(self) -> None:
        multi = self.client().multilock(self.names("ab"))
        await refused(NotHeld, multi.release)
        await got(multi.acquire())
        await got(multi.release())
        await refused(NotHeld, multi.release)

    async def test_names_are_several_and_never_one_string(self) -> None:
        client = self.client()
        await refused(TypeError, lambda: client.multilock("abc"))
        await refused(ValueError, lambda: client.multilock([]))
        bad: list[Any] = [self.name, ""]
        await refused(ValueError, lambda: client.multilock(bad))
