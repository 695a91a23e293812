"""FIELD: taking and giving back, whatever interrupts. (1, 2, 3, 12, 17, 18)"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from interlock.errors import AcquireTimeout, StoreUnavailable, WouldDeadlock
from interlock.testing.conformance import Suite, got, refused, within
from interlock.testing.lag import stretched
from tests.field.tap import When, tapped
from tests.patience import PATIENCE

MAKERS: dict[str, Callable[[Any, str], Any]] = {
    "lock": lambda client, name: client.lock(name, timeout=stretched(0.1)),
    "unfair lock": lambda client, name: client.lock(name, timeout=stretched(0.1), fair=False),
    "rlock": lambda client, name: client.rlock(name, timeout=stretched(0.1)),
    "read": lambda client, name: client.rwlock(name, timeout=stretched(0.1)).read(),
    "write": lambda client, name: client.rwlock(name, timeout=stretched(0.1)).write(),
    "semaphore": lambda client, name: client.semaphore(name, timeout=stretched(0.1)),
    "bounded semaphore": lambda client, name: client.bounded_semaphore(name, timeout=stretched(0.1)),
    "multilock": lambda client, name: client.multilock([name], timeout=stretched(0.1)),
    "condition": lambda client, name: client.condition(name, client.lock(name, timeout=stretched(0.1))),
}

Main = Callable[[], Coroutine[Any, Any, Any]]


class Taking(Suite):
    """With nothing in between and with everything in between."""

    # ---- 1 ----------------------------------------------------------------------

    async def test_01_with_never_runs_the_body_unless_held(self) -> None:
        ours, theirs = self.client(), self.client()
        for kind, make in MAKERS.items():
            name = f"{self.name}-{kind}"
            holder = theirs.rwlock(name).write() if kind in ("read", "write") else theirs.lock(name)
            async with within(holder):
                await refused(AcquireTimeout, partial(self._enter, make(ours, name)))

    async def test_01_nor_when_the_store_does_not_answer(self) -> None:
        def spoil(when: When, call: str, args: Any) -> None:
            if call == "claim":
                raise StoreUnavailable("cut off")

        client = self.client(wrap=tapped(spoil))
        for kind, make in MAKERS.items():
            await refused(StoreUnavailable, partial(self._enter, make(client, f"{self.name}-{kind}")))

    async def _enter(self, lock: Any) -> None:
        async with within(lock):
            raise AssertionError("the body ran")

    # ---- 2 ----------------------------------------------------------------------

    async def test_02_cancelled_at_any_await_of_acquire_nothing_is_left(self) -> None:
        await self._interrupt_everywhere(self._acquire)

    async def test_02_cancelled_at_any_await_of_a_contended_acquire_nothing_is_left(self) -> None:
        holder, see = self.client().lock(self.name), self.client()
        async with within(holder):
            await self._interrupt_everywhere(self._acquire_in_vain, left=1)
            await self.standing(see, 1, 0)

    async def test_02_cancelled_at_any_await_of_release_it_is_free(self) -> None:
        await self._interrupt_everywhere(self._release, prepare=self._acquire, first=1)

    async def test_02_cancelled_at_any_await_of_a_multilock_none_is_left(self) -> None:
        await self._interrupt_everywhere(self._acquire_many)

    async def _acquire(self, client: Any) -> None:
        await got(client.lock(self.name).acquire())

    async def _acquire_in_vain(self, client: Any) -> None:
        await got(client.lock(self.name).acquire(timeout=0.05))

    async def _acquire_many(self, client: Any) -> None:
        await got(client.multilock([self.name, self.name + "-2"]).acquire())

    async def _release(self, client: Any) -> None:
        for lease in list(client._core.leases):
            lease.adopt()
            await got(lease.release())

    async def _interrupt_everywhere(
        self, main: Any, prepare: Any = None, left: int = 0, first: int = 0
    ) -> None:
        """Interrupt `main(client)` at its first await, its second, ... until it gets through."""
        see, through = self.client(), 0
        for step in range(first, 60):
            self._step, self._seen, self._armed = step, 0, False
            client = self.client(wrap=tapped(self._strike))
            if prepare is not None:
                await prepare(client)
            self._armed = True
            interrupted = await self._interrupted(main, client, step)
            self._armed = False
            if not interrupted:
                await self._release(client)
                through += 1
            await self.standing(see, left, 0)
            assert not client._core.leases
            assert not client._core.keeper.kept()
            await got(client.close())
            if through == 3:
                return
        raise AssertionError("it never got through")

    async def _interrupted(self, main: Any, client: Any, step: int) -> bool:
        if not self.face.asynchronous:
            try:
                await main(client)
            except KeyboardInterrupt:
                return True
            return False
        task = asyncio.ensure_future(main(client))
        pause = 0.002 * 1.25 ** max(
            0, step - 40
        )  # a busy machine, or a store far away, needs longer to get through
        for _ in range(step):
            await asyncio.sleep(0 if step < 12 else pause)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        return bool(task.cancelled())

    def _strike(self, when: When, call: str, args: Any) -> None:
        """Ctrl-C at the n-th place where a thread can meet it; tasks are cancelled from outside."""
        if self._armed and not self.face.asynchronous and call in ("claim", "release", "wait"):
            self._seen += 1
            if self._seen == self._step + 1:
                raise KeyboardInterrupt

    # ---- 3 ----------------------------------------------------------------------

    async def test_03_a_lost_reply_is_answered_by_asking_again_and_the_claim_is_recognised(self) -> None:
        lost, tokens = list[str](), list[int]()

        def spoil(when: When, call: str, args: Any) -> None:
            if (when, call) == ("after", "claim") and len(lost) < 2:
                lost.append(args[0].id)
                raise StoreUnavailable("the reply is lost")

        client, see = self.client(wrap=tapped(spoil)), self.client()
        lease = await got(client.lock(self.name).acquire())
        tokens.append(lease.token)
        queue = await self.standing(see, 1, 0)
        assert lost == [queue.holders[0].id] * 2
        assert tokens == [queue.holders[0].token]
        await got(lease.release())

    async def test_03_a_lost_reply_to_a_release_is_no_error(self) -> None:
        lost = list[str]()

        def spoil(when: When, call: str, args: Any) -> None:
            if (when, call) == ("after", "release") and not lost:
                lost.append(args[1])
                raise StoreUnavailable("the reply is lost")

        client = self.client(wrap=tapped(spoil))
        lock = client.lock(self.name)
        await got(lock.acquire())
        await got(lock.release())
        assert len(lost) == 1

    async def test_03_a_lost_reply_to_a_write_is_not_taken_for_a_conflict(self) -> None:
        lost = list[str]()

        def spoil(when: When, call: str, args: Any) -> None:
            if (when, call) == ("after", "compare_and_set") and not lost:
                lost.append(call)
                raise StoreUnavailable("the reply is lost")

        register = self.client(wrap=tapped(spoil)).register(self.name)
        written = await got(register.compare_and_set(0, "x"))
        assert written is not None
        assert (await got(register.read())).version == written.version

    # ---- 12, 17, 18 ----------------------------------------------------------------

    async def test_12_re_entry_keeps_the_token(self) -> None:
        lock = self.client().rlock(self.name)
        async with within(lock) as outer, within(lock) as inner:
            assert inner.token == outer.token

    async def test_17_two_names_never_share_a_lock(self) -> None:
        assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
        pairs = [("plumless", "buckeroo"), ("a", "A"), ("a", "a "), ("a/b", "a//b"), ("é", "e\u0301")]
        pairs += [("x" * 1023 + "y", "x" * 1023 + "z"), ("1", "01"), ("ß", "ss"), ("{a}b", "{a}c")]
        client = self.client()
        for one, other in pairs:
            async with within(client.lock(one)), within(client.lock(other, timeout=PATIENCE)):
                pass

    async def test_18_a_writer_is_not_starved(self) -> None:
        self.needs(shares=("any", "pairwise"), fair=True)
        stop, wrote = list[int](), list[int]()

        async def read() -> None:
            lock = self.client().rwlock(self.name).read()
            while not stop:
                async with within(lock):
                    await self.runtime.sleep(0.002)

        async def write() -> None:
            lock = self.client().rwlock(self.name, timeout=PATIENCE).write()
            for _ in range(5):
                async with within(lock):
                    wrote.append(1)

        readers = [self.spawn(read) for _ in range(4)]
        try:
            await self.spawn(write).result()
        finally:
            stop.append(1)
        for reader in readers:
            await reader.result()
        assert len(wrote) == 5

    async def test_18_upgrading_read_to_write_raises_and_never_hangs(self) -> None:
        self.needs(shares=("any", "pairwise"))
        client = self.client()
        lock = client.rwlock(self.name)
        async with within(lock.read()):
            await refused(WouldDeadlock, lock.write().acquire)
            await refused(WouldDeadlock, lambda: self._enter(client.rwlock(self.name).write()))
