"""Naive locks on Redis, over redis-py: SET NX PX and its relatives, on one server or on several."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from interlock.lab.storm.workers.naive.lock import NaiveLease, NaiveLock
from interlock.testing.journal import Journal
from interlock.testing.lag import stretched

COMPARE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
NODE_S = 0.15  # that one node may take, on a quiet machine


def _failures() -> tuple[type[BaseException], ...]:
    import redis

    return (redis.RedisError, OSError)


class Naive(NaiveLock):
    """SET NX PX on a majority of the servers; one server is a majority of one. No token."""

    def __init__(self, place: list[int], ttl: float, journal: Journal) -> None:
        super().__init__(place, ttl, journal)
        self._nodes = [_node(port) for port in place]

    def ask(self, resource: str, id: str) -> int | None:
        tokens = [token for node in self._nodes if (token := self._ask(node, resource, id)) is not None]
        return max(tokens) if len(tokens) > len(self._nodes) // 2 else None

    def _ask(self, node: Any, resource: str, id: str) -> int | None:
        with suppress(*_failures()):
            if node.set(resource, id, nx=True, px=int(self.ttl * 1000)):
                return self._token(node, resource)
        return None

    def _token(self, node: Any, resource: str) -> int:
        return 0

    def take_back(self, resource: str, id: str) -> None:
        for node in self._nodes:
            with suppress(*_failures()):
                node.eval(COMPARE, 1, resource, id)

    def close(self) -> None:
        for node in self._nodes:
            node.close()


def _node(port: int) -> Any:
    import redis

    seconds = stretched(NODE_S)
    no_retry: Any = {"retry_on_timeout": False, "retry": None}
    return redis.Redis(port=port, socket_timeout=seconds, socket_connect_timeout=seconds, **no_retry)


class Careless(Naive):
    """Releases without looking: a late holder frees another's lock."""

    def free(self, lease: NaiveLease) -> None:
        for node in self._nodes:
            was = node.getdel(lease.resource)
            if was is not None and was.decode() != lease.id:
                self.touched(lease, was.decode())


class Counting(Naive):
    """Tokens from a counter beside the lock: gone when the server's memory is.

    On several nodes, the highest of a majority's answers: without a second round two majorities may see the
    same.
    """

    def _token(self, node: Any, resource: str) -> int:
        return int(node.incr(f"{resource}:token"))


class OneCounter(Naive):
    """Redlock with the counter of its first node."""

    def _token(self, node: Any, resource: str) -> int:
        return int(node.incr(f"{resource}:token")) if node is self._nodes[0] else 0


class TwoSteps(Naive):
    """SETNX, then EXPIRE; this one is always killed between the two."""

    def _ask(self, node: Any, resource: str, id: str) -> int | None:
        return 0 if node.setnx(resource, id) else None


class EarlyUnlock(Naive):
    """Lets its own process in again, and forgets on the way out that it was entered twice."""

    def _ask(self, node: Any, resource: str, id: str) -> int | None:
        mine = str(os.getpid()).encode()
        if node.get(resource) == mine or node.set(resource, mine, nx=True, px=int(self.ttl * 1000)):
            return 0
        return None

    def take_back(self, resource: str, id: str) -> None:
        """What it finds may be the outer block's: it leaves it alone."""

    def free(self, lease: NaiveLease) -> None:
        for node in self._nodes:
            node.delete(lease.resource)
