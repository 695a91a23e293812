"""One worker process: takes locks, counts under them, and writes down what it did.

It is told what to do by lines of JSON on its standard input, one step at a time (directed schedules) or a loop until
it is stopped (storms). The steps are written once, for threads and tasks.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any

from interlock._core.drive import drive
from interlock._support import clock
from interlock.errors import InterlockError, StaleToken
from interlock.testing.conformance import got
from tests.storm.guard import Guarded
from tests.storm.journal import Journal, Pulse
from tests.storm.naive import NAIVE
from tests.storm.naive_etcd import NAIVE_ETCD
from tests.storm.witness import BEGAN, LOST, SHARED, Interlock, name

RELEASE = 12.0  # seconds a release may take: two requests, each with the longest time of one


class Worker:
    """The steps of one process; `kind` is sync, async or the name of a naive lock."""

    def __init__(self, name: str, kind: str, place: Any, ttl: float, folder: str, guard: str) -> None:
        self.asynchronous = kind == "async"
        self.journal = Journal(Path(folder, f"{name}.jsonl"), name)
        self._pulse = Pulse(self.journal)
        self._name, self._ttl = name, ttl
        self._guard = Guarded(guard)
        self._calls = count(1)
        self._stopping = threading.Event()
        self._hands: list[Any] = []
        self._held: dict[str, Any] = {}
        naive = {**NAIVE, **NAIVE_ETCD}
        if kind == "pinged":
            from tests.storm.zookeeper import Pinged  # here, not above: it takes interlock's rule away

            self._locks: Any = Pinged(place, ttl, self.journal)
        elif kind == "naivemysql":
            from tests.storm.naive_mysql import NaiveMysql

            self._locks = NaiveMysql(place, ttl, self.journal)
        elif kind == "naiverow":
            from tests.storm.postgresql import NaiveRow

            self._locks = NaiveRow(place, ttl, self.journal)
        elif kind in naive:
            self._locks = naive[kind](place, ttl, self.journal)
        else:
            self._locks = Interlock(place, ttl, self.journal, asynchronous=self.asynchronous)

    # ---- single steps -----------------------------------------------------------------

    async def acquire(self, resource: str, timeout: float) -> Any:
        """The lease, or None; whatever was raised is in the history."""
        attempt = f"{self._name}-{next(self._calls)}"
        said: dict[str, Any] = {"attempt": attempt, "resource": resource}
        BEGAN.set(self.journal.add("acquire", "invoke", limit=timeout, **said))
        try:
            lease = await got(self._locks.take(resource, timeout))
        except InterlockError as error:
            self.journal.add("acquire", "info", error=repr(error), **said)
            return None
        self.journal.add("acquire", "fail" if lease is None else "ok", **said)
        return lease

    async def release(self, lease: Any) -> None:
        said: dict[str, Any] = {"attempt": f"{self._name}-{next(self._calls)}", "resource": lease.resource}
        self.journal.add("release", "invoke", limit=RELEASE, **said)
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
            self._guard.write(lease.resource, lease.token, value, _id(lease))
        except StaleToken:
            return False
        return True

    # ---- a storm's rounds -------------------------------------------------------------

    async def rounds(
        self, resources: list[str], seed: str, limits: list[float], long: float, thinks: float
    ) -> None:
        chance = random.Random(seed)
        while not self._stopping.is_set():
            lease = await self.acquire(chance.choice(resources), chance.choice(limits))
            if lease is None:
                await self._pause(0.02 * chance.random())
                continue
            await self._count(lease, chance, long, thinks)
            await self.release(lease)
            await self._pause(0.01 * chance.random())

    async def _count(self, lease: Any, chance: random.Random, long: float, thinks: float) -> None:
        """Read, think for up to `thinks` seconds, write; `long` is how often it thinks for longer than a ttl.

        It does not look at the clock before each write: only the token helps then.
        """
        writes = lease.permits != 1 or not lease.resource.startswith(SHARED)
        value = self.read(lease) if writes else None
        await self._pause(1.4 * self._ttl if chance.random() < long else thinks * chance.random())
        if value is not None and (self.valid(lease) or chance.random() < 0.5):
            self.write(lease, value + 1)

    async def _pause(self, seconds: float) -> None:
        if self.asynchronous:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        if self.asynchronous:
            self._hands.append(asyncio.ensure_future(work))
        else:
            self._hands.append(threading.Thread(target=drive, args=(work,), daemon=True))
            self._hands[-1].start()

    # ---- what the director says -------------------------------------------------------

    async def obey(self) -> None:
        self._say({"ready": self._name})
        while line := await self._line():
            order = json.loads(line)
            answer = await self._do(order.pop("do"), order)
            self._say(answer)
            if "over" in answer:
                return

    async def _line(self) -> str:
        if self.asynchronous:
            return await asyncio.to_thread(sys.stdin.readline)
        return sys.stdin.readline()

    def _say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    async def _do(self, what: str, order: dict[str, Any]) -> dict[str, Any]:
        if what == "acquire":
            lease = await self.acquire(order["resource"], order["timeout"])
            if lease is not None:
                self._held[order["resource"]] = lease
            return {"token": None if lease is None else lease.token}
        if what == "loop":
            for number in range(order["hands"]):
                seed = f"{order['seed']}/{self._name}/{number}"
                how_long = order.get("long", 0.01), order.get("thinks", 0.012)
                self._beside(self.rounds(order["resources"], seed, order["limits"], *how_long))
            return {"ok": True}
        if what == "stop":
            return {"over": await self._stop()}
        lease = self._held[order["resource"]]
        if what == "release":
            await self.release(lease)
            return {"ok": True}
        if what == "write":
            return {"accepted": self.write(lease, order["value"])}
        return {"valid": self.valid(lease)} if what == "check" else {"value": self.read(lease)}

    async def _stop(self) -> bool:
        self._stopping.set()
        for hand in self._hands:
            if self.asynchronous:
                await hand
            else:
                hand.join()
        await got(self._locks.close())
        await self._look_around()
        self._pulse.stop()
        return True

    async def _look_around(self) -> None:
        """A client that was closed leaves nothing; sockets and threads may take a moment to go."""
        until = clock.now() + 3.0
        while (left := self._locks.left()) and clock.now() < until:
            await self._pause(0.02)
        for what in left:
            self.journal.add("left", "fail", error=what)


def _id(lease: Any) -> str:
    return str(lease.id) if hasattr(lease, "id") else name(lease)


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
