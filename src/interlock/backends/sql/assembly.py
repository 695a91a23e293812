"""Puts a store together from its parts: sources of connections, requesters, the listener, and the side for
the keeper.
"""

from __future__ import annotations

from typing import Any

from interlock._core.runtime import Runtime
from interlock.backends.kit.reader import ReadingRuntime
from interlock.backends.kit.runtime import ThreadRuntime, WaitRuntime
from interlock.backends.sql.dialect import Dialect, Source
from interlock.backends.sql.keeper import KeeperConnection
from interlock.backends.sql.requester import Requester
from interlock.backends.sql.server_store import ServerState, ServerStore
from interlock.backends.sql.sharing import ListenerShare


def _no_loop() -> None:
    """The event loop of a caller on a thread."""


def _running_loop() -> Any:
    from asyncio import get_running_loop  # here, not above: a sync client does without asyncio

    return get_running_loop()


class Assembly:
    """Makes a sync or an async store over one dialect.

    All of its sides share one listener and what they know of claims.
    """

    def __init__(self, dialect: Dialect, runtime: Runtime) -> None:
        self._dialect = dialect
        self._runtime = runtime
        self._share = ListenerShare(dialect.listener_key, dialect.subscribe)
        self._state = ServerState()
        self._keeper = KeeperConnection(dialect.label)

    def store(self, *, asynchronous: bool) -> ServerStore:
        return self._async_store() if asynchronous else self._blocking_store()

    def _blocking_store(self) -> ServerStore:
        source = self._dialect.source(self._runtime, blocking=True)
        store = self._over(source, self._runtime)
        store.sides.make_keeper = lambda: self._keeper_side(self._runtime, blocking=True)
        return store

    def _async_store(self) -> ServerStore:
        """An asyncio store has a blocking side, for the keeper's thread and for the end of the process."""
        source = self._dialect.source(self._runtime, blocking=False)
        store = self._over(source, self._runtime, blocking=False)
        threads = ThreadRuntime(self._runtime.now)
        threaded = self._over(self._dialect.own_source(threads, blocking=True), threads, for_keeper=True)

        def keep_on_threads() -> ServerStore:
            self._keeper.use(threaded._requester.source, blocks=True)
            return threaded

        threaded.sides.make_keeper = keep_on_threads
        store.sides.blocking = threaded
        store.sides.make_keeper = lambda: self._keeper_side(self._runtime, blocking=False)
        return store

    def _keeper_side(self, runtime: WaitRuntime, *, blocking: bool) -> ServerStore:
        source = self._dialect.own_source(runtime, blocking=blocking)
        side = self._over(source, runtime, for_keeper=True, blocking=blocking)
        self._keeper.use(source, blocks=blocking)
        return side

    def _over(
        self, source: Source, runtime: WaitRuntime, *, for_keeper: bool = False, blocking: bool = True
    ) -> ServerStore:
        requester = Requester(
            source,
            runtime,
            for_keeper=for_keeper,
            blocking=blocking,
            keeper=None if for_keeper else self._keeper,
            doubt=self._doubt,
        )
        dialect, listener = self._dialect, self._share.listener
        # On every side: the listener's thread must know of all who wait, or it would lend the reading to one
        # of two.
        reading = ReadingRuntime(runtime, lambda: listener.reader, _no_loop if blocking else _running_loop)
        return ServerStore(dialect, requester, self._share, reading, self._state, self._keeper)

    def _doubt(self) -> None:
        """A connection ended unasked, or the server takes no writes: another one may have taken over,
        which may not know all claims.
        """
        for call in self._state.doubt_callbacks:
            call()
