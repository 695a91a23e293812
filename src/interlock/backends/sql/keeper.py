"""The keeper's own connection, made together with the first connection of the client, before anything is
granted.

Threads and tasks of a client take turns on their connections, and a renewal that waited for its turn would
come too late just when the client is busiest. A renewal that needed a new connection would not come at all
once the server has reached `max_connections`.
"""

from __future__ import annotations

from interlock._core.drive import drive
from interlock.backends.sql.dialect import Source


class KeeperConnection:
    """Connects for the keeper of a client, once there is a keeper."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._source: Source | None = None
        self._blocks = True
        self._warm = False

    def use(self, source: Source, *, blocks: bool) -> None:
        """Set the keeper's source; `blocks` says whether it is one for threads."""
        self._source, self._blocks, self._warm = source, blocks, False

    def after_fork(self) -> None:
        self._warm = False

    @property
    def wanted(self) -> bool:
        """Whether a connection must be made for the keeper before a request is sent."""
        return self._source is not None and not self._warm

    async def warm(self, timeout: float, *, blocking: bool) -> None:
        """Connect the keeper. `blocking` says where this is called: on a thread, or in an event loop."""
        assert self._source is not None
        if blocking or not self._blocks:
            await self._source.warm(timeout)
        else:
            await self._warm_on_thread(self._source, timeout)
        self._warm = True

    async def _warm_on_thread(self, source: Source, timeout: float) -> None:
        from interlock._support import clock
        from interlock.backends.kit.executor_thread import ExecutorThread  # here, not above: it needs asyncio

        def warm(until: float) -> None:
            drive(source.warm(until - clock.now()), nested=True)

        thread = ExecutorThread(clock.now, "interlock-keeper-connect", self._label)
        try:
            await thread.run(warm, timeout=timeout)
        finally:
            thread.close()
