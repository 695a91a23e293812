"""The blocking face: a lock of redis-py whose every decision is interlock's."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, Literal

from redis.lock import Lock as RedisPyLock

from interlock import blocking
from interlock._core.drive import drive
from interlock.contrib.redis_py import possession
from interlock.contrib.redis_py.clients import shared


class Local(threading.local):
    """The token of each thread's own acquire; a thread that took nothing has no token, where redis-py has
    no such attribute.
    """

    token: bytes | None = None
    lease: Any = None
    ahead = 0  # claims in front of the last attempt that came too late


def local(thread_local: bool) -> Any:
    """The state of a lock object: of each thread its own, or one for all."""
    return Local() if thread_local else SimpleNamespace(token=None, lease=None, ahead=0)


class Lock(RedisPyLock):
    """A lock of redis-py that waits without polling, in the order of arrival, and has a lease.

    The constructor is redis-py's. `timeout`: the lock ends after this many seconds unless extended; None,
    where redis-py's never ends, is a ttl of 30 s, renewed as long as the thread that took it lives (with
    `thread_local=False`: as long as somebody has this object). `sleep` is accepted and not needed.
    """

    redis: Any  # a redis.Redis

    def register_scripts(self) -> None:
        """Nothing is registered, which would keep the first client for ever: the constructor's last step is
        ours.

        The rest of the constructor is redis-py's own, of whatever version.
        """
        self.local = local(self.thread_local)

    @property
    def lease(self) -> blocking.Lease | None:
        """The lease the caller took through this object, with its fencing token; None if it took none."""
        lease = possession.lease_of(self, self.local.token)
        assert lease is None or isinstance(lease, blocking.Lease)
        return lease

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; False if it could not be had within `blocking_timeout`, or at once if not
        `blocking`.
        """
        return drive(
            possession.take(
                self,
                shared(self.redis),
                self.blocking if blocking is None else blocking,
                self.blocking_timeout if blocking_timeout is None else blocking_timeout,
                token,
                passed_on=not self.thread_local,
            )
        )

    def __enter__(self) -> Lock:
        began = time.monotonic()
        if self.acquire():
            return self
        raise drive(possession.refused(self, shared(self.redis), time.monotonic() - began))

    def owned(self) -> bool:
        """Whether the caller holds the lock through this object. Asks the server."""
        return drive(possession.stands(self))

    def do_release(self, expected_token: Any) -> None:
        drive(possession.give_back(self, shared(self.redis), expected_token))

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        drive(possession.move(self, additional_time, "1" if replace_ttl else "0", "extend"))
        return True

    def do_reacquire(self) -> Literal[True]:
        assert self.timeout is not None  # redis-py has refused that before
        drive(possession.move(self, self.timeout, "2", "reacquire"))
        return True
