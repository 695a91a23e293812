"""One program that locks through redis-py: its client, its loop, its locks; the same calls for all kinds of lock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.lock import Lock as TheirAsyncLock
from redis.lock import Lock as TheirLock

from interlock.contrib.redis_py import AsyncLock, Lock
from tests.patience import PATIENCE
from tests.patience import until as until


@dataclass(frozen=True)
class Kind:
    """Whose lock it is, of which colour, and whether its client decodes replies."""

    ours: bool
    asynchronous: bool
    decoded: bool = False

    @property
    def lock_class(self) -> Any:
        if self.asynchronous:
            return AsyncLock if self.ours else TheirAsyncLock
        return Lock if self.ours else TheirLock

    def __str__(self) -> str:
        words = ["interlock" if self.ours else "redis-py", "async" if self.asynchronous else "sync"]
        return "-".join([*words, "decoded"] if self.decoded else words)


KINDS = [
    Kind(ours, asynchronous, decoded)
    for ours in (False, True)
    for asynchronous in (False, True)
    for decoded in (False, True)
]
OURS = [kind for kind in KINDS if kind.ours and not kind.decoded]


class Party:
    """A client of redis-py, on a loop of its own if it needs one. Used by one thread at a time."""

    def __init__(self, port: int, kind: Kind) -> None:
        self.kind = kind
        self._runner = asyncio.Runner() if kind.asynchronous else None
        library: Any = redis.asyncio if kind.asynchronous else redis
        self.client: Any = library.Redis(port=port, decode_responses=kind.decoded)

    def run(self, answer: Any) -> Any:
        """What a call gives, awaited if need be."""
        if self._runner is None or not isawaitable(answer):
            return answer

        async def wait() -> Any:
            return await answer

        return self._runner.run(wait())

    def lock(self, name: Any, **options: Any) -> Held:
        return Held(self, self.client.lock(name, lock_class=self.kind.lock_class, **options))

    def ask(self, *command: Any) -> Any:
        """A bare command; text comes as bytes whatever the client does."""
        reply = self.run(self.client.execute_command(*command))
        return reply.encode() if isinstance(reply, str) and self.kind.decoded else reply

    def __enter__(self) -> Party:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.client.aclose() if self.kind.asynchronous else self.client.close())
        if self._runner is not None:
            self._runner.close()


class Held:
    """A lock of either colour, called as the blocking one is."""

    def __init__(self, party: Party, lock: Any) -> None:
        self.party = party
        self.lock = lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.lock, name)
        if not callable(found):
            return found
        return lambda *args, **kwargs: self.party.run(found(*args, **kwargs))

    def __enter__(self) -> Any:
        enter = self.lock.__aenter__ if self.party.kind.asynchronous else self.lock.__enter__
        return self.party.run(enter())

    def __exit__(self, *error: Any) -> Any:
        leave = self.lock.__aexit__ if self.party.kind.asynchronous else self.lock.__exit__
        return self.party.run(leave(*error))


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run `work` on a thread while the body runs; at its end the list holds what came of it."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield result
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def attempts(party: Party) -> int:
    """How often the server was asked for a lock so far, in either way."""
    stats = party.run(party.client.info("commandstats"))
    return sum(stats.get(f"cmdstat_{way}", {}).get("calls", 0) for way in ("set", "eval", "evalsha"))
