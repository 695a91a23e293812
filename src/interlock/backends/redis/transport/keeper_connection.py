"""The keeper's own connections: made while the first one of its client is, before anything is granted.

Requests of a client's threads and tasks take turns on their connections. A renewal that stood in that line would come
too late just when the client is busiest; and one that needs a new connection, when the server has reached its limit of them,
would not come at all.
"""

from __future__ import annotations

from interlock.backends.redis import resolver
from interlock.backends.redis.address import Route
from interlock.backends.redis.errors import timeout_error
from interlock.backends.redis.transport.handshake import stepped
from interlock.backends.redis.transport.interface import Transport
from interlock.errors import StoreUnavailable


class KeeperConnection:
    """The leaf of a client's keeper, once it has one."""

    def __init__(self) -> None:
        self._transport: Transport | None = None
        self._blocks = True

    def use(self, transport: Transport, *, blocks: bool) -> None:
        """This is the keeper's from now on."""
        self._transport, self._blocks = transport, blocks

    @property
    def wanted(self) -> bool:
        """Whether a connection must be made for the keeper before anything is asked."""
        return self._transport is not None

    def warm(self, route: Route, timeout: float) -> None:
        """Have the keeper's connection to the server of this route; on a plain thread."""
        assert self._transport is not None
        stepped(self._transport.warm(route, timeout))

    async def warm_async(self, route: Route, timeout: float) -> None:
        """The same, on an event loop; also if the keeper is a thread."""
        assert self._transport is not None
        if not self._blocks:
            await self._transport.warm(route, timeout)
            return
        try:
            await resolver.on_thread(lambda: self.warm(route, timeout), timeout)
        except TimeoutError:
            raise timeout_error(route.place, timeout) from None
        except RuntimeError as error:  # no thread is to be had, and the keeper will need one, too
            raise StoreUnavailable(f"{route.place}: the keeper cannot connect: {error}") from None
