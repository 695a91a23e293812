"""Errors that are redis-py's and interlock's at once: `except redis.exceptions.LockError` goes on working.

The first of an error's args is its message, as in redis-py; all of them together make the error again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis import exceptions as theirs

from interlock.errors import (
    AcquireTimeout,
    Evicted,
    InterlockError,
    LeaseLost,
    StoreUnavailable,
    StoreUnfit,
)
from interlock.model import Standing


def _tell(kind: Any, error: Any, message: str, lock_name: str | None = None) -> None:
    """What redis-py's own constructor says, which is not typed, and knows names only in later versions."""
    kind.__init__(error, message)
    error.message, error.lock_name = message, lock_name


# interlock's parents first: an OSError must be made by its own __new__.


class LockLost(LeaseLost, theirs.LockNotOwnedError):
    """The lock is no longer the caller's: it lapsed, was taken away, or the parent of this process has it."""

    def __init__(self, message: str, lock_name: str, token: int, cause: str, reason: str = "") -> None:
        _tell(theirs.RedisError, self, message, lock_name)
        self.resource, self.token, self.cause, self.reason = lock_name, token, cause, reason
        self.args = (message, lock_name, token, cause, reason)

    def __str__(self) -> str:
        return f"{self.message}: {LeaseLost.__str__(self)}"


class LockTimeout(AcquireTimeout, theirs.LockError):
    """The lock was not to be had in time; says who holds it."""

    def __init__(
        self,
        message: str,
        lock_name: str,
        waited: float,
        ahead: int = 0,
        holders: Iterable[Standing | Sequence[Any]] = (),
    ) -> None:
        AcquireTimeout.__init__(self, lock_name, waited, ahead, holders)
        args = self.args
        _tell(theirs.RedisError, self, message, lock_name)
        self.args = (message, *args)

    def __str__(self) -> str:
        return f"{self.message}: {AcquireTimeout.__str__(self)}"


class LockEvicted(Evicted, theirs.LockError):
    """An operator took the caller's place in the queue away while it waited."""

    def __init__(self, message: str, lock_name: str, reason: str = "") -> None:
        _tell(theirs.RedisError, self, message, lock_name)
        self.resource, self.reason = lock_name, reason
        self.args = (message, lock_name, reason)


class LockUnavailable(StoreUnavailable, theirs.ConnectionError, theirs.TimeoutError):
    """The server did not answer. Nobody knows whether the request was applied."""

    def __init__(self, message: str) -> None:
        _tell(theirs.ConnectionError, self, message)


class LockUnfit(StoreUnfit, theirs.ResponseError):
    """The server can not be used as it is: it refuses the user, the command or the write."""

    def __init__(self, message: str) -> None:
        _tell(theirs.ResponseError, self, message)


def translated(error: InterlockError, doing: str = "use") -> InterlockError:
    """The same error, such that code written for redis-py knows it, too."""
    if isinstance(error, LeaseLost):
        message = f"Cannot {doing} a lock that's no longer owned"
        return LockLost(message, error.resource, error.token, error.cause, error.reason)
    if isinstance(error, Evicted):
        return LockEvicted(str(error), error.resource, error.reason)
    if isinstance(error, StoreUnavailable):
        return LockUnavailable(str(error))
    if isinstance(error, StoreUnfit):
        return LockUnfit(str(error))
    return error  # a name, a setting: a ValueError in both libraries


def not_owned(doing: str, lock_name: str) -> theirs.LockNotOwnedError:
    """For who shows a token that does not hold the lock, or not any more."""
    error = theirs.LockNotOwnedError(f"Cannot {doing} a lock that's no longer owned")
    error.lock_name = lock_name
    return error
