"""Puts a store together from its parts: transport, listener, runtime, and the side for the keeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock._core.runtime import Runtime
from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.reader import ReadingRuntime
from interlock.backends.kit.runtime import ThreadRuntime, WaitRuntime
from interlock.backends.redis.address import Route
from interlock.backends.redis.pubsub.listener import Listener
from interlock.backends.redis.replicated import ReplicasWanted, ReplicatedStore, WaitTransport
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.handshake import AsyncHandshake, BlockingHandshake, Handshake
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.transport.keeper_connection import KeeperConnection
from interlock.backends.redis.transport.pool import Pool
from interlock.backends.redis.wire.keys import Keys

if TYPE_CHECKING:
    from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener

MakeTransport = Callable[[Callable[[Route], Transport], WaitRuntime, Handshake, bool], Transport]
"""Makes the transport of a deployment out of transports to single servers; the flag says whether it is the
keeper's.
"""

Checks = Callable[[Handshake, ReplicasWanted | None, Examiner], Awaitable[None]]
"""Examines the servers of a deployment."""


class Assembly:
    """Makes sync or async stores over one route, with their sides for the keeper; all of them share one
    listener.
    """

    def __init__(
        self,
        route: Route,
        keys: Keys,
        runtime: Runtime,
        transport: MakeTransport,
        wanted: Callable[[Transport, Handshake], ReplicasWanted | None],
        checks: Checks,
        kinds: tuple[Callable[..., RedisStore], Callable[..., ReplicatedStore]] = (
            RedisStore,
            ReplicatedStore,
        ),
        sharded: ShardedListener | None = None,
    ) -> None:
        self._route, self._keys, self._runtime = route, keys, runtime
        self._transport, self._wanted, self._kinds = transport, wanted, kinds
        self._checks = checks
        self._listener = sharded or Listener(route)
        self._keeper_connection = KeeperConnection()

    def store(self, *, asynchronous: bool) -> RedisStore:
        return self._async_store() if asynchronous else self._blocking_store(self._runtime)

    def _blocking_store(self, waiting: WaitRuntime) -> RedisStore:
        pool = self._transport(
            lambda route: Pool(route, keeper_connection=self._keeper_connection),
            waiting,
            BlockingHandshake(),
            False,
        )
        store = self._over(
            pool, pool, self._reading_runtime(waiting, lambda: None), None, BlockingHandshake()
        )
        store.sides.make_keeper = lambda: self._with_keeper(self._blocking_keeper(waiting), blocks=True)
        return store

    def _blocking_keeper(self, waiting: WaitRuntime) -> RedisStore:
        """A blocking store for the keeper: the time to connect is part of the time that a call has."""
        pool = self._transport(lambda route: Pool(route, for_keeper=True), waiting, BlockingHandshake(), True)
        return self._over(pool, pool, self._reading_runtime(waiting, lambda: None), None, BlockingHandshake())

    def _async_store(self) -> RedisStore:
        """An asyncio store has a blocking side, for the keeper's thread and for the end of the process."""
        from asyncio import get_running_loop  # here, not above: most programs do without

        from interlock.backends.redis.transport.multiplexed import MultiplexedTransport

        def multiplexed() -> Transport:
            return self._transport(
                lambda route: MultiplexedTransport(route, keeper_connection=self._keeper_connection),
                runtime,
                AsyncHandshake(),
                False,
            )

        def task_keeper() -> RedisStore:
            own = self._transport(
                lambda route: MultiplexedTransport(route, for_keeper=True), runtime, AsyncHandshake(), True
            )
            return self._with_keeper(
                self._over(own, own, reading_runtime, None, AsyncHandshake()), blocks=False
            )

        runtime = self._runtime
        reading_runtime = self._reading_runtime(runtime, get_running_loop)
        blocking_side = self._blocking_keeper(ThreadRuntime(runtime.now))
        blocking_side.sides.make_keeper = lambda: self._with_keeper(blocking_side, blocks=True)
        store = self._over(
            multiplexed(), WaitTransport(multiplexed), reading_runtime, blocking_side, AsyncHandshake()
        )
        store.sides.make_keeper = task_keeper
        return store

    def _over(
        self,
        transport: Transport,
        wait_transport: Transport,
        runtime: WaitRuntime,
        blocking_side: RedisStore | None,
        handshake: Handshake,
    ) -> RedisStore:
        plain, replicated = self._kinds
        count = self._wanted(transport, handshake)
        parts = (self._route.label, self._keys, transport, self._listener, runtime, blocking_side)
        store: RedisStore
        if count is None:
            store = plain(*parts)
        else:
            store = made = replicated(*parts)
            made.replicate(count, wait_transport)
        store.checks = partial(self._checks, handshake, count)
        return store

    def _reading_runtime(self, runtime: WaitRuntime, loop: Callable[[], Any]) -> WaitRuntime:
        return ReadingRuntime(runtime, lambda: self._listener.reader, loop)

    def _with_keeper(self, side: RedisStore, *, blocks: bool) -> RedisStore:
        """Have the keeper's own connection made before the first request of anybody else."""
        self._keeper_connection.use(side._transport, blocks=blocks)
        return side
