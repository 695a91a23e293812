"""A leaf for a server that may be another one tomorrow: it outlives failovers.

What the old master answers after the new one was met counts for nothing: it is asked again, there. While nobody is
master, a request that may be repeated is repeated until its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from interlock import native
from interlock.backends.redis.address import Route
from interlock.backends.redis.errors import merged_error
from interlock.backends.redis.transport.interface import Transport, WaitRuntime
from interlock.backends.redis.wire.resp import ErrorReply
from interlock.errors import ClientClosed, StoreUnavailable

ATTEMPT = 1.5  # seconds after which a silent master is not waited for: there may be another by now
PAUSE = 0.1  # seconds between attempts while there is no master
DEMOTED = ("READONLY", "MASTERDOWN")


class FailoverRoute(Protocol):
    """A route that counts how often its server became another."""

    @property
    def place(self) -> str: ...
    @property
    def changes(self) -> int: ...
    def inside(self) -> bool: ...
    def after_fork(self) -> None: ...


class FailoverTransport:
    """Requests go through one leaf for as long as the master stays, then through a new one."""

    def __init__(
        self, make: Callable[[], Transport], route: FailoverRoute, runtime: WaitRuntime, *, several: bool
    ) -> None:
        self._make = make
        self._route = route
        self._runtime = runtime
        self._several = several  # connections in one leaf: when one fails, the others are suspect
        self._closed = False
        self._guard = native.guard()
        self._now = (make(), route.changes)  # the leaf, and how many changes it has seen

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        until, failure = self._runtime.now() + timeout, None
        while True:
            transport, seen = self._now
            if self._closed:  # or a change of master would have us look for a new leaf for ever
                raise ClientClosed("this client was closed")
            if seen != self._route.changes:
                await self._replace(transport)
                continue
            left = max(0.001, until - self._runtime.now())
            if again:
                left = min(left, ATTEMPT)
            try:
                reply = await transport.ask(request, left, replies, again)
            except (StoreUnavailable, ClientClosed) as error:
                if self._closed:
                    raise
                failure = merged_error(failure, self._error_for(transport, error))
                repeatable = again or isinstance(error, ClientClosed)  # then it was not sent
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
            if not repeatable or self._runtime.now() + PAUSE >= until:
                raise failure
            await self._runtime.wait(self._runtime.signal(), PAUSE)

    def _error_for(self, transport: Transport | None, error: Exception | None) -> StoreUnavailable:
        if transport is self._now[0] and isinstance(error, StoreUnavailable):
            return error
        return StoreUnavailable(
            f"{self._route.place}: another server has just become master; try again in a moment"
        )

    async def _replace(self, old: Transport) -> None:
        """A new leaf; once for all who come with the same old one."""
        with self._guard:
            if self._now[0] is not old or self._closed:
                return
            # The count first: what the new leaf meets when it connects may be the next change.
            changes = self._route.changes
            self._now = (self._make(), changes)
        await old.close()

    async def warm(self, route: Route, timeout: float) -> None:
        await self._now[0].warm(route, timeout)

    def inside(self) -> bool:
        return self._guard._is_owned() or self._now[0].inside() or self._route.inside()

    def after_fork(self) -> None:
        self._guard = native.guard()
        self._route.after_fork()
        self._now[0].after_fork()

    async def close(self) -> None:
        with self._guard:
            self._closed = True
            transport = self._now[0]
        await transport.close()


def _demoted(reply: Any, replies: int) -> bool:
    """Whether a replica refused: then nothing was done."""
    first = reply[0] if replies > 1 else reply
    return isinstance(first, ErrorReply) and any(word in first.text for word in DEMOTED)
