"""The keeper's own connections, made together with the first connection of the client, before anything is
granted.

Threads and tasks of a client take turns on their connections. A renewal that waited for its turn would come
too late just when the client is busiest. A renewal that needed a new connection would not come at all once
the server has reached its limit of clients.
"""

from __future__ import annotations

from interlock._core.drive import drive
from interlock.backends.kit import resolver
from interlock.backends.redis.address import Route
from interlock.backends.redis.errors import timeout_error
from interlock.backends.redis.transport.interface import Transport
from interlock.errors import StoreUnavailable


class KeeperConnection:
    """Connects for the keeper of a client, once there is a keeper."""

    def __init__(self) -> None:
        self._transport: Transport | None = None
        self._blocks = True

    def use(self, transport: Transport, *, blocks: bool) -> None:
        """Set the keeper's transport; `blocks` says whether it is a blocking one."""
        self._transport, self._blocks = transport, blocks

    @property
    def wanted(self) -> bool:
        """Whether a connection must be made for the keeper before a request is sent."""
        return self._transport is not None

    def warm(self, route: Route, timeout: float) -> None:
        """Connect the keeper to the server of this route, on a plain thread."""
        assert self._transport is not None
        drive(self._transport.warm(route, timeout), nested=True)

    async def warm_async(self, route: Route, timeout: float) -> None:
        """The same on an event loop; the keeper itself may be a thread or a task."""
        assert self._transport is not None
        if not self._blocks:
            await self._transport.warm(route, timeout)
            return
        try:
            await resolver.on_thread(lambda: self.warm(route, timeout), timeout)
        except TimeoutError:
            raise timeout_error(route.label, timeout) from None
        except RuntimeError as error:  # no thread can be started, and the keeper will need one, too
            raise StoreUnavailable(f"{route.label}: the keeper cannot connect: {error}") from None
