"""Taking, moving and giving back, written once for both faces. Under a blocking client no await suspends.

The lock object keeps redis-py's state, `local.token`, and beside it the lease. Whoever sets a token by hand,
taken by another object or process, can release and extend what that token holds, as in redis-py; it has no
lease.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from redis.exceptions import LockError
from redis.lock import Lock as RedisPyLock

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.settings import Settings
from interlock._core.states import FINAL, State
from interlock._support.package_text import text_beside
from interlock.backends.redis.wire.keys import companion
from interlock.contrib.redis_py import tokens
from interlock.contrib.redis_py.clients import outlives_exit
from interlock.contrib.redis_py.errors import LockTimeout, not_owned, translated
from interlock.errors import InterlockError
from interlock.model import Gone, Renewed

NOT_ACQUIRED = "Unable to acquire lock within the time specified"  # as redis-py says it
WHOLE_PART = 0.9  # of the ttl: with less left, a lease was handed over with the rest of its waiter's place
RELEASE: str = RedisPyLock.LUA_RELEASE_SCRIPT  # for a key that redis-py's own lock wrote


EXTEND = text_beside(__spec__, "extend.lua")


class RedisLock(Protocol):
    """The settings of a redis-py lock, sync or async."""

    redis: Any
    name: Any
    timeout: Any
    local: Any


class Bearer:
    """The lock object itself as the owner: threads and tasks may pass it on.

    Alive as long as somebody has it.
    """

    def __init__(self, lock: object, name: str) -> None:
        self._lock = weakref.ref(lock)
        self.name = name

    def alive(self) -> bool:
        return self._lock() is not None


def lease_of(lock: RedisLock, token: bytes | None) -> Lease | None:
    """The caller's lease, if the token stands for it: a token that was set by hand was taken elsewhere."""
    lease: Lease | None = lock.local.lease
    if token is None or lease is None:
        return None
    own = lease.id.encode() == token or lease._claim.note == tokens.note(token)
    return lease if own else None


async def take(
    lock: RedisLock, client: Client, blocking: bool, wait: float | None, token: Any, *, passed_on: bool
) -> bool:
    """Whether the lock was taken, within `wait` seconds; then token and lease are the caller's."""
    chosen = None if token is None else tokens.encoded(lock.redis, token)
    # A timeout ends the lock, as in redis-py; without one it would be immortal there, and is renewed here.
    settings = Settings(lock.timeout, renew=False) if lock.timeout else Settings()
    try:
        holding = Holding(client, tokens.resource(lock), settings)
        note = "" if chosen is None else tokens.note(chosen)
        attempt = holding.attempt(
            blocking, max(0.0, wait) if blocking and wait is not None else None, note=note
        )
        lease = await _granted(holding, attempt)
    except InterlockError as error:
        raise translated(error, "acquire") from error
    if lease is None:
        lock.local.ahead = attempt.ahead
        return False
    if passed_on:
        lease._set_owner(Bearer(lock, holding.resource))
    if lock.timeout:
        outlives_exit(lease)
    lock.local.token = lease.id.encode() if chosen is None else chosen
    lock.local.lease = lease
    return True


async def _granted(holding: Holding, attempt: Attempt) -> Lease | None:
    try:
        lease = await attempt.run()
        if lease is not None and not holding.terms.renew and lease.remaining() < WHOLE_PART * lease.ttl:
            await lease._renew_now()  # nobody else does: the keeper leaves it alone
        return lease
    except BaseException:  # interrupted between the grant and our return: nobody would release it
        await holding.client.runtime.finish(attempt.undo)
        raise


async def refused(lock: RedisLock, client: Client, waited: float) -> LockError:
    """The error for who must not go on without the lock; names the holder, if the server tells in time."""
    name = tokens.resource(lock)
    try:
        queue = await client.store.inspect(name, timing.patience(0.0), limit=1)  # the holder, if there is one
    except InterlockError:
        return LockTimeout(NOT_ACQUIRED, name, waited)
    return LockTimeout(NOT_ACQUIRED, name, waited, lock.local.ahead, queue.holders)


async def give_back(lock: RedisLock, client: Client, token: bytes) -> None:
    """Release what the token holds; LockNotOwnedError if it holds nothing any more."""
    lease = lease_of(lock, token)
    try:
        if lease is None or lease._state is State.RELEASED or lease._holding.client.closed:
            await _give_back_by(lock, client, token)
        else:
            await lease._give_back(strict=True)
    except InterlockError as error:
        raise translated(error, "release") from error
    finally:
        lock.local.lease = None


async def _give_back_by(lock: RedisLock, client: Client, token: bytes) -> None:
    """Release by a token alone: another object, or another process, took the lock."""
    id = await tokens.standing(lock, token)
    if id == token and await _foreign(lock, token):
        return
    if id is None or not await client.store.release(tokens.resource(lock), id.decode(errors="replace")):
        raise not_owned("release", tokens.resource(lock))


async def _foreign(lock: RedisLock, token: bytes) -> bool:
    """Whether redis-py's own lock had taken it; then it is released."""
    return bool(await tokens.answer(lock.redis.eval(RELEASE, 1, lock.name, token)))


async def move(lock: RedisLock, seconds: float, mode: str, doing: str) -> None:
    """Let the lock lapse later, or sooner; see the head of the script.

    LockNotOwnedError if it is another's.
    """
    token = lock.local.token
    lease = lease_of(lock, token)
    if lease is not None:
        if lease.state in FINAL:
            raise _lost(lease, doing)
        id: bytes | None = lease.id.encode()
    else:
        id = await tokens.standing(lock, token)
    if id is None:
        raise not_owned(doing, tokens.resource(lock))
    asked = lease._runtime.now() if lease is not None else 0.0  # before the question: see Lease
    holder = tokens.encoded(lock.redis, lock.name)
    keys = [holder, companion(holder, b"w")]
    left = await tokens.answer(lock.redis.eval(EXTEND, 2, *keys, id, int(seconds * 1000), mode))
    if lease is not None:
        _moved(lease, asked, left)
    if left is None:
        raise not_owned(doing, tokens.resource(lock)) if lease is None else _lost(lease, doing)


def _moved(lease: Lease, asked: float, left: int | None) -> None:
    """Tell the lease what the server said."""
    if left is None:
        lease._on_reply(asked, Gone())
    elif (until := timing.deadline(asked, left / 1000)) > lease.deadline:
        lease._on_reply(asked, Renewed(left / 1000))
    else:
        lease._shorten(until)


def _lost(lease: Lease, doing: str) -> InterlockError:
    return translated(lease.loss(), doing)


async def stands(lock: RedisLock) -> bool:
    """Whether the lock is the caller's now. Asks the server; what the lease knows to be lost, is."""
    token = lock.local.token
    lease = lease_of(lock, token)
    if token is None or (lease is not None and lease.state in FINAL):
        return False
    return await tokens.standing(lock, token if lease is None else lease.id.encode()) is not None
