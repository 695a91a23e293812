"""Puts a store together from its parts: transport, listener, runtime, and the side for the keeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.backends.redis.address import Route
from interlock.backends.redis.pubsub.listener import Listener
from interlock.backends.redis.pubsub.reader import Attending
from interlock.backends.redis.replicated import Lanes, ReplicatedStore, Wanted
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.handshake import Dialling, OnLoop, OnThread
from interlock.backends.redis.transport.interface import Leaf, Pausing, Plainly
from interlock.backends.redis.transport.keeper_connection import Reserve
from interlock.backends.redis.transport.pool import Pool
from interlock.backends.redis.wire.keys import Keys
from interlock.ports import Runtime

if TYPE_CHECKING:
    from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener

MakeLeaf = Callable[[Callable[[Route], Leaf], Pausing, Dialling, bool], Leaf]
"""Makes the leaf of one kind of deployment out of leaves to single servers; the last says whether it is the keeper's."""


class Assembly:
    """Stores of either colour over one route, and their sides for the keeper; they share what hears of grants."""

    def __init__(
        self,
        route: Route,
        keys: Keys,
        runtime: Runtime,
        leaf: MakeLeaf,
        wanted: Callable[[Leaf, Dialling], Wanted | None],
        kinds: tuple[type[RedisStore], type[ReplicatedStore]] = (RedisStore, ReplicatedStore),
        sharded: ShardedListener | None = None,
    ) -> None:
        self._route, self._keys, self._runtime = route, keys, runtime
        self._leaf, self._wanted, self._kinds = leaf, wanted, kinds
        self._listener = sharded or Listener(route)
        self._reserve = Reserve()

    def store(self, *, asynchronous: bool) -> RedisStore:
        return self._on_loop() if asynchronous else self._on_threads(self._runtime)

    def _on_threads(self, waiting: Pausing) -> RedisStore:
        pool = self._leaf(lambda route: Pool(route, reserve=self._reserve), waiting, OnThread(), False)
        store = self._over(pool, pool, self._attending(waiting, lambda: None), None, OnThread())
        store._keeper = lambda: self._kept(self._hurried(waiting), blocks=True)
        return store

    def _hurried(self, waiting: Pausing) -> RedisStore:
        """A store in which connecting is a part of every call's time."""
        pool = self._leaf(lambda route: Pool(route, hurried=True), waiting, OnThread(), True)
        return self._over(pool, pool, self._attending(waiting, lambda: None), None, OnThread())

    def _on_loop(self) -> RedisStore:
        """An asyncio store has a blocking twin, for the keeper's thread and for the end of the process."""
        from asyncio import get_running_loop  # here, not above: most programs do without

        from interlock.backends.redis.transport.multiplexed import Links

        def link() -> Leaf:
            return self._leaf(lambda route: Links(route, reserve=self._reserve), runtime, OnLoop(), False)

        def task_keeper() -> RedisStore:
            own = self._leaf(lambda route: Links(route, hurried=True), runtime, OnLoop(), True)
            return self._kept(self._over(own, own, pausing, None, OnLoop()), blocks=False)

        runtime = self._runtime
        pausing = self._attending(runtime, get_running_loop)
        twin = self._hurried(Plainly(runtime))
        twin._keeper = lambda: self._kept(twin, blocks=True)
        store = self._over(link(), Lanes(link), pausing, twin, OnLoop())
        store._keeper = task_keeper
        return store

    def _over(
        self, leaf: Leaf, lane: Leaf, pausing: Pausing, twin: RedisStore | None, dial: Dialling
    ) -> RedisStore:
        plain, replicated = self._kinds
        if (count := self._wanted(leaf, dial)) is None:
            return plain(self._route.place, self._keys, leaf, self._listener, pausing, twin)
        store = replicated(self._route.place, self._keys, leaf, self._listener, pausing, twin)
        store.replicate(count, lane)
        return store

    def _attending(self, pausing: Pausing, loop: Callable[[], Any]) -> Pausing:
        return Attending(pausing, lambda: self._listener.reading, loop)

    def _kept(self, side: RedisStore, *, blocks: bool) -> RedisStore:
        """From now on the keeper's own connection is made before the first request of the others."""
        self._reserve.keep(side._leaf, blocks=blocks)
        return side
