"""A transport that survives failovers of its master.

A reply of the old master that comes after the new one was reached does not count, and the request goes to the
new master. While there is no master, a repeatable request is repeated until its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from interlock._support import native
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Route
from interlock.backends.redis.errors import merged_error
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.wire.resp import ErrorReply
from interlock.errors import ClientClosed, StoreUnavailable

ATTEMPT_S = 1.5  # seconds after which a silent master is given up: there may be another by now
PAUSE_S = 0.1  # seconds between attempts while there is no master
DEMOTED = ("READONLY", "MASTERDOWN")


class FailoverRoute(Protocol):
    """A route that counts how often its server changed."""

    @property
    def label(self) -> str: ...
    @property
    def changes(self) -> int: ...
    def inside(self) -> bool: ...
    def after_fork(self) -> None: ...


class FailoverTransport:
    """Sends requests through one transport while the master stays the same, then through a new one."""

    def __init__(
        self, make: Callable[[], Transport], route: FailoverRoute, runtime: WaitRuntime, *, several: bool
    ) -> None:
        self._make = make
        self._route = route
        self._runtime = runtime
        # Whether a transport has several connections: if one fails, the others are suspect.
        self._several = several
        self._closed = False
        self._mutex = native.mutex()
        self._now = (make(), route.changes)  # the transport, and the count of changes when it was made

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        until, failure = self._runtime.now() + timeout, None
        while True:
            transport, seen = self._now
            if self._closed:  # otherwise a change of master would have us replace the transport for ever
                raise ClientClosed("this client was closed")
            if seen != self._route.changes:
                await self._replace(transport)
                continue
            left = max(0.001, until - self._runtime.now())
            if again:
                left = min(left, ATTEMPT_S)
            try:
                reply = await transport.ask(request, left, replies, again)
            except (StoreUnavailable, ClientClosed) as error:
                if self._closed:
                    raise
                failure = merged_error(failure, self._error_for(transport, error))
                repeatable = again or isinstance(error, ClientClosed)  # then the request was not sent
                if self._several:
                    await self._replace(transport)
            else:
                demoted = _demoted(reply, replies)
                changed = seen != self._route.changes
                if not changed and not demoted:
                    return reply
                failure, repeatable = self._error_for(None, None), again or demoted
                await self._replace(transport)
                if changed and repeatable and self._runtime.now() < until:
                    continue
            if not repeatable or self._runtime.now() + PAUSE_S >= until:
                raise failure
            await self._runtime.wait(self._runtime.signal(), PAUSE_S)

    def _error_for(self, transport: Transport | None, error: Exception | None) -> StoreUnavailable:
        if transport is self._now[0] and isinstance(error, StoreUnavailable):
            return error
        return StoreUnavailable(
            f"{self._route.label}: another server has just become master; try again in a moment"
        )

    async def _replace(self, old: Transport) -> None:
        """Replace the transport, once for all callers that come with the same old one."""
        with self._mutex:
            if self._now[0] is not old or self._closed:
                return
            # Read the count first: the new transport may cause the next change when it connects.
            changes = self._route.changes
            self._now = (self._make(), changes)
        await old.close()

    async def warm(self, route: Route, timeout: float) -> None:
        await self._now[0].warm(route, timeout)

    def inside(self) -> bool:
        return self._mutex._is_owned() or self._now[0].inside() or self._route.inside()

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._route.after_fork()
        self._now[0].after_fork()

    async def close(self) -> None:
        with self._mutex:
            self._closed = True
            transport = self._now[0]
        await transport.close()


def _demoted(reply: Any, replies: int) -> bool:
    """Whether the server refused because it is a replica, so that nothing was done."""
    first = reply[0] if replies > 1 else reply
    return isinstance(first, ErrorReply) and any(word in first.text for word in DEMOTED)
