"""One worker process: takes locks, counts under them, and writes down what it did.

It is told what to do by lines of JSON on its standard input, one step at a time (directed schedules) or a
loop until it is stopped (storms). The steps are written once, for threads and tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from interlock._core.drive import drive
from interlock._support import clock
from interlock.errors import InterlockError, LeaseLost, NotHeld, StaleToken
from interlock.lab.resource import ResourceClient
from interlock.lab.storm.resources import synchronizer_of
from interlock.lab.storm.workers.lease_lives import BEGAN, name_of
from interlock.lab.storm.workers.naive import naive_lock
from interlock.lab.storm.workers.synchronizers import Interlock
from interlock.testing.conformance.face import got
from interlock.testing.journal import Journal, Pulse

RELEASE_S = 12.0  # that a release may take: two requests, each with the longest time of one
EPOCH_S = 2.0  # that workers stay with one register, so that its history is small enough to be searched
LOST = (LeaseLost, NotHeld)


Order = Callable[["Worker", dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]


class Worker:
    """The steps of one process; `kind` is sync, async or the name of a naive lock."""

    def __init__(self, name: str, kind: str, place: Any, ttl: float, folder: str, guard: str) -> None:
        self.asynchronous = kind == "async"
        self.journal = Journal(Path(folder, f"{name}.jsonl"), name)
        self._pulse = Pulse(self.journal)
        self._name, self._ttl = name, ttl
        self._guard = ResourceClient(guard)
        self._calls = count(1)
        self._stopping = threading.Event()
        self._hands: list[Any] = []
        self._held: dict[str, list[Any]] = {}
        self._registers = set[str]()
        self._chance = Random(name)
        if kind in ("sync", "async"):
            self._locks: Any = Interlock(place, ttl, self.journal, asynchronous=self.asynchronous)
        else:
            self._locks = naive_lock(kind)(place, ttl, self.journal)

    # ---- single steps ------------------------------------------------------------------------

    def _attempt(self, resource: str) -> dict[str, Any]:
        return {"attempt": f"{self._name}-{next(self._calls)}", "resource": resource}

    async def acquire(self, resource: str, timeout: float, chance: Random) -> Any:
        """The lease, or None; whatever was raised is in the history."""
        said = self._attempt(resource)
        BEGAN.set(self.journal.add("acquire", "invoke", limit=timeout, **said))
        try:
            lease = await got(self._locks.take(resource, timeout, chance))
        except InterlockError as error:
            self.journal.add("acquire", "info", error=repr(error), **said)
            return None
        self.journal.add("acquire", "fail" if lease is None else "ok", **said)
        return lease

    async def release(self, lease: Any) -> None:
        said = self._attempt(lease.resource)
        self.journal.add("release", "invoke", limit=RELEASE_S, **said)
        try:
            await got(lease.release())
        except LOST as error:
            self.journal.add("release", "fail", error=repr(error), **said)
        except InterlockError as error:
            self.journal.add("release", "info", error=repr(error), **said)
        else:
            self.journal.add("release", "ok", **said)

    def valid(self, lease: Any) -> bool:
        asked = clock.now()  # before the question: a machine that stops us after it is no lie of the lease
        try:
            lease.check()
        except LOST:
            return False
        self.journal.add("check", "ok", at=asked, attempt=_id(lease), deadline=lease.deadline)
        return True

    def read(self, lease: Any) -> int | None:
        try:
            return self._guard.read(lease.resource, lease.token)
        except StaleToken:
            return None

    def write(self, lease: Any, value: int) -> bool:
        try:
            self._guard.write(lease.resource, lease.token, value, attempt=_id(lease))
        except StaleToken:
            return False
        return True

    # ---- a storm's rounds --------------------------------------------------------------------

    async def rounds(
        self, resources: list[str], seed: str, limits: list[float], long: float, thinks: float
    ) -> None:
        """Work on these until the end; `long` is how often a holder thinks for longer than a ttl."""
        chance = Random(seed)
        while not self._stopping.is_set():
            resource = chance.choice(resources)
            if synchronizer_of(resource) == "register":
                await self._update(resource, chance)
                await self._pause(thinks * chance.random())
                continue
            lease = await self.acquire(resource, chance.choice(limits), chance)
            if lease is None:
                await self._pause(0.02 * chance.random())
                continue
            await self._count(lease, chance, long, thinks)
            await self.release(lease)
            await self._pause(0.01 * chance.random())

    async def _count(self, lease: Any, chance: Random, long: float, thinks: float) -> None:
        """Read, think, write. It does not look at the clock before each write: only the token helps then.

        Where several hold at once there is no number that all of them could count up.
        """
        shared = {"rwlock": lease.permits == 1, "semaphore": True}
        alone = not shared.get(synchronizer_of(lease.resource), False)
        value = self.read(lease) if alone else None
        await self._pause(1.4 * self._ttl if chance.random() < long else thinks * chance.random())
        if not alone:
            self._guard.visit(lease.resource)
        elif value is not None and (self.valid(lease) or chance.random() < 0.5):
            self.write(lease, value + 1)

    async def _update(self, resource: str, chance: Random) -> None:
        """Read the register of this moment, and write it unless somebody else has."""
        key = f"{resource}/{int(clock.now() / EPOCH_S)}"
        self._registers.add(key)
        register, said = self._locks.register(key), self._attempt(key)
        self.journal.add("get", "invoke", **said)
        try:
            seen = await got(register.read())
        except InterlockError as error:
            self.journal.add("get", "info", error=repr(error), **said)
            return
        self.journal.add("get", "ok", value=seen.value or 0, token=seen.version, **said)
        if chance.random() < 0.3:
            return
        said = self._attempt(key)
        value = int(f"{self._name[1:]}{next(self._calls):07}")  # nobody else writes it
        self.journal.add("put", "invoke", value=value, expected=seen.version, **said)
        try:
            written = await got(register.compare_and_set(seen, value))
        except InterlockError as error:
            self.journal.add("put", "info", error=repr(error), **said)
            return
        if written is None:
            self.journal.add("put", "fail", **said)
        else:
            self.journal.add("put", "ok", token=written.version, **said)
            self._guard.visit(resource)

    async def _forget_registers(self) -> None:
        """Delete what this worker wrote: an idle store keeps nothing of it."""
        for key in sorted(self._registers):
            try:
                await got(self._locks.register(key).update(_deleted))
            except InterlockError as error:
                self.journal.add("note", "info", error=f"{key}: {error!r}")

    async def _pause(self, seconds: float) -> None:
        if self.asynchronous:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251  (of a worker on threads)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        if self.asynchronous:
            self._hands.append(asyncio.ensure_future(work))
        else:
            self._hands.append(threading.Thread(target=drive, args=(work,), daemon=True))
            self._hands[-1].start()

    # ---- what the director says --------------------------------------------------------------

    async def obey(self) -> None:
        self._say({"ready": self._name})
        while line := await self._line():
            order = json.loads(line)
            answer = await self._orders[order.pop("do")](self, order)
            self._say(answer)
            if "over" in answer:
                return

    async def _line(self) -> str:
        if self.asynchronous:
            return await asyncio.to_thread(sys.stdin.readline)
        return sys.stdin.readline()

    def _say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    async def _on_acquire(self, order: dict[str, Any]) -> dict[str, Any]:
        lease = await self.acquire(order["resource"], order["timeout"], self._chance)
        if lease is not None:
            self._held.setdefault(order["resource"], []).append(lease)
        return {"token": None if lease is None else lease.token}

    async def _on_loop(self, order: dict[str, Any]) -> dict[str, Any]:
        for number in range(order["hands"]):
            seed = f"{order['seed']}/{self._name}/{number}"
            how_long = order.get("long", 0.01), order.get("thinks", 0.012)
            self._beside(self.rounds(order["resources"], seed, order["limits"], *how_long))
        return {"ok": True}

    async def _on_block(self, order: dict[str, Any]) -> dict[str, Any]:
        """Keep the event loop busy. Its own calls and reports are late then, as they are in a pause."""
        self.journal.add("fault", "invoke", error="pause")
        time.sleep(order["seconds"])  # noqa: ASYNC251  (that is the point)
        self.journal.add("fault", "invoke", error="resume")
        return {"ok": True}

    async def _on_release(self, order: dict[str, Any]) -> dict[str, Any]:
        await self.release(self._held[order["resource"]].pop())
        return {"ok": True}

    async def _on_write(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"accepted": self.write(self._held[order["resource"]][-1], order["value"])}

    async def _on_check(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"valid": self.valid(self._held[order["resource"]][-1])}

    async def _on_read(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"value": self.read(self._held[order["resource"]][-1])}

    async def _on_stop(self, order: dict[str, Any]) -> dict[str, Any]:
        self._stopping.set()
        for hand in self._hands:
            if self.asynchronous:
                await hand
            else:
                hand.join()
        await self._forget_registers()
        await got(self._locks.close())
        await self._look_around()
        self._pulse.stop()
        return {"over": True}

    _orders: ClassVar[dict[str, Order]] = {
        "acquire": _on_acquire,
        "loop": _on_loop,
        "block": _on_block,
        "release": _on_release,
        "write": _on_write,
        "check": _on_check,
        "read": _on_read,
        "stop": _on_stop,
    }

    async def _look_around(self) -> None:
        """A client that was closed leaves nothing; sockets and threads may take a moment to go."""
        until = clock.now() + 3.0
        while (left := self._locks.left()) and clock.now() < until:
            await self._pause(0.02)
        for what in left:
            self.journal.add("left", "fail", error=what)


def _deleted(value: object) -> None:
    """What a register is updated to when nobody needs it any more."""


def _id(lease: Any) -> str:
    return str(lease.id) if hasattr(lease, "over") else name_of(lease)


def main() -> None:
    settings = json.loads(sys.argv[1])

    async def work() -> None:
        await Worker(**settings).obey()

    if settings["kind"] == "async":
        asyncio.run(work())
    else:
        drive(work())


if __name__ == "__main__":
    main()
