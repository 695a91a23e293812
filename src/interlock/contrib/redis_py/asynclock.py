"""The asyncio face: a lock of redis.asyncio whose every decision is interlock's."""

from __future__ import annotations

import time
from typing import Any, Literal

from redis.asyncio.lock import Lock as RedisPyLock

from interlock import aio
from interlock.contrib.redis_py import possession
from interlock.contrib.redis_py.clients import shared_async
from interlock.contrib.redis_py.lock import local


class AsyncLock(RedisPyLock):
    """A lock of redis.asyncio that waits without polling, in the order of arrival, and has a lease.

    As `Lock`. Any task may release what another took, as in redis-py, so without a `timeout` it is renewed as
    long as somebody has this object and the event loop lives.
    """

    def register_scripts(self) -> None:
        """Nothing is registered, which would keep the first client for ever: the constructor's last step is
        ours.

        The rest of the constructor is redis-py's own, of whatever version.
        """
        self.local = local(self.thread_local)

    @property
    def lease(self) -> aio.Lease | None:
        """The lease that was taken through this object, with its fencing token; None if none was."""
        lease = possession.lease_of(self, self.local.token)
        assert lease is None or isinstance(lease, aio.Lease)
        return lease

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; False if it could not be had within `blocking_timeout`, or at once if not
        `blocking`.
        """
        return await possession.take(
            self,
            await shared_async(self.redis),
            self.blocking if blocking is None else blocking,
            self.blocking_timeout if blocking_timeout is None else blocking_timeout,
            token,
            passed_on=True,
        )

    async def __aenter__(self) -> AsyncLock:
        began = time.monotonic()
        if await self.acquire():
            return self
        raise await possession.refused(self, await shared_async(self.redis), time.monotonic() - began)

    async def owned(self) -> bool:
        """Whether the lock is held through this object. Asks the server."""
        return await possession.stands(self)

    async def do_release(self, expected_token: Any) -> None:
        await possession.give_back(self, await shared_async(self.redis), expected_token)

    async def do_extend(self, additional_time: Any, replace_ttl: Any) -> Literal[True]:
        await possession.move(self, additional_time, "1" if replace_ttl else "0", "extend")
        return True

    async def do_reacquire(self) -> Literal[True]:
        assert self.timeout is not None  # redis-py has refused that before
        await possession.move(self, self.timeout, "2", "reacquire")
        return True
