"""Locks as they are often written. Each has a flaw of the literature: the harness has to convict it.

They speak to the servers through redis-py, write the same history as interlock's, and are blocking. Their leases
believe in their ttl from before the request was sent, as interlock's do: what convicts them is the flaw alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

import redis

from interlock._support import clock
from interlock.errors import LeaseLost, NotHeld
from interlock.testing.lag import stretched
from tests.storm.journal import Journal
from tests.storm.witness import BEGAN

COMPARE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
RETRY = 0.02
SHORT = stretched(0.15)  # seconds one node may take
FAILED = (redis.RedisError, OSError)


class NaiveLease:
    """Believed in until its ttl has passed."""

    def __init__(self, locks: Naive, resource: str, id: str, token: int, deadline: float) -> None:
        self._locks, self.resource, self.id, self.token, self.deadline = locks, resource, id, token, deadline
        self.over = False
        locks.note(self, "grant", "ok", began=BEGAN.get())

    def check(self) -> None:
        if self.over or clock.now() >= self.deadline:
            raise LeaseLost(self.resource, self.token, "lapsed")

    def release(self) -> None:
        lapsed = clock.now() >= self.deadline
        if self.over:
            raise NotHeld(self.resource)
        self.over = True
        self._locks.note(self, "end", "info" if lapsed else "ok")
        self._locks.free(self)


class Naive:
    """SET NX PX on one server. No token: every write says 0."""

    token_key = ""
    compares = True  # whether a release looks whose lock it frees

    def __init__(self, ports: list[int], ttl: float, journal: Journal) -> None:
        self._ttl = ttl
        self._journal = journal
        self._nodes: list[Any] = [self._node(port) for port in ports]

    @staticmethod
    def _node(port: int) -> Any:
        no_retry: Any = {"retry_on_timeout": False, "retry": None}
        return redis.Redis(port=port, socket_timeout=SHORT, socket_connect_timeout=SHORT, **no_retry)

    def note(self, lease: NaiveLease, call: str, kind: Any, **rest: Any) -> None:
        said: dict[str, Any] = {"attempt": lease.id, "resource": lease.resource, "token": lease.token}
        self._journal.add(call, kind, **said, **{"deadline": lease.deadline, **rest})

    def take(self, resource: str, timeout: float) -> NaiveLease | None:
        until = clock.now() + timeout
        while True:
            asked, id = clock.now(), uuid4().hex
            token = self._try(resource, id)
            if token is not None and clock.now() < asked + self._ttl:
                return NaiveLease(self, resource, id, token, asked + self._ttl * 0.98)
            self._free_all(resource, id)
            if clock.now() + RETRY >= until:
                return None
            time.sleep(RETRY)

    def _try(self, resource: str, id: str) -> int | None:
        """A token if a majority of the nodes granted; one node is a majority of one."""
        tokens = [token for node in self._nodes if (token := self._ask(node, resource, id)) is not None]
        return max(tokens) if len(tokens) > len(self._nodes) // 2 else None

    def _ask(self, node: Any, resource: str, id: str) -> int | None:
        with suppress(*FAILED):
            if node.set(resource, id, nx=True, px=int(self._ttl * 1000)):
                return self._token(node, resource)
        return None

    def _token(self, node: Any, resource: str) -> int:
        return 0

    def _free_all(self, resource: str, id: str) -> None:
        for node in self._nodes:
            with suppress(*FAILED):
                node.eval(COMPARE, 1, resource, id)

    def free(self, lease: NaiveLease) -> None:
        self._free_all(lease.resource, lease.id)

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def left(self) -> list[str]:
        return []


class Careless(Naive):
    """Releases without looking: a late holder frees another's lock."""

    def free(self, lease: NaiveLease) -> None:
        for node in self._nodes:
            was = node.getdel(lease.resource)
            if was is not None and was.decode() != lease.id:
                what = f"released the lock of {was.decode()}"
                self._journal.add("touch", "fail", attempt=lease.id, resource=lease.resource, error=what)


class Counting(Naive):
    """Tokens from a counter beside the lock: gone when the server's memory is.

    On several nodes, the highest of a majority's answers: without a second round two majorities may see the same.
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


NAIVE = {kind.__name__.lower(): kind for kind in (Naive, Careless, Counting, OneCounter, TwoSteps)}

# Without tokens all have 0, and nobody is told of a loss: that is not the flaw which a lock here has to be convicted of.
ASIDE = {"N2", "N8"}


def told(verdict: Any) -> str:
    return "\n".join(str(violation) for violation in verdict.violations)
