"""The exception tree. Errors carry data; the sentence is made from the data.

Each is also the builtin it resembles, so code written for `threading` keeps working:
`AcquireTimeout` is a `TimeoutError`, `NotHeld` a `RuntimeError`, `StoreUnavailable` a
`ConnectionError`, `InvalidName` a `ValueError`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from interlock.model import Standing
from interlock.wording import counted, duration, held, taken


class InterlockError(Exception):
    """Everything interlock raises on its own account.

    An error survives the way from a worker process to its parent, by pickle or by `type(error)(*error.args)`: its
    args are plain data, from which JSON (as Celery's results have it) can make it again.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"  # task queues log this: args alone would say less

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[InterlockError], args: tuple[Any, ...], data: dict[str, Any]) -> InterlockError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(data)
    return error


class InvalidName(InterlockError, ValueError):
    """The name of a resource is empty, too long, or holds a control character or lone surrogate."""


class InvalidURL(InterlockError, ValueError):
    """The URL names no store interlock knows, or says something that store does not understand."""


class InvalidSetting(InterlockError, ValueError):
    """A ttl, timeout, capacity or other setting is out of range."""


class Unsupported(InterlockError, ValueError):
    """The store lacks an ability that was asked for."""


class SettingsMismatch(InterlockError, ValueError):
    """Contenders disagree on the capacity of a resource."""

    def __init__(self, resource: str, asked: int, standing: int) -> None:
        super().__init__(resource, asked, standing)
        self.resource = resource
        self.asked = asked
        self.standing = standing

    def __str__(self) -> str:
        return (
            f"{self.resource}: asked for capacity {self.asked}, but live claims stand under capacity "
            f"{self.standing}; all contenders must use the same kind of lock and the same capacity"
        )


class AcquireTimeout(InterlockError, TimeoutError):
    """The lease was not granted in time; says who holds the resource and how many are ahead."""

    def __init__(
        self,
        resource: str,
        waited: float,
        ahead: int = 0,
        holders: Iterable[Standing | Sequence[Any]] = (),
    ) -> None:
        super().__init__(resource)  # an OSError with more would take them for errno and filename
        self.resource = resource
        self.waited = waited
        self.ahead = ahead
        self.holders = tuple(_standing(holder) for holder in holders)
        self.args = (resource, waited, ahead, tuple(_plain(holder) for holder in self.holders))

    def __str__(self) -> str:
        parts = [f"{self.resource}: not acquired in {duration(self.waited)}"]
        if self.ahead > 0:  # holders are counted, too; 0 means that the store had not told
            parts.append(f"{counted(self.ahead, 'claim')} ahead")
        parts += [held(holder) for holder in self.holders[:3]] or ["who held it is not known"]
        if more := len(self.holders[3:]):
            parts.append(f"and {counted(more, 'more holder')}")
        return "; ".join(parts)


class Skipped(InterlockError):
    """A job that runs once was not run, because another has it, or had it less than `min_hold` ago.

    What a function under `client.once` returns then, and false: `if not job(): ...`. A `with client.once(...)` raises
    it, because a `with` cannot skip its body; then it is true, as errors are: code that handles errors asks for that.
    """

    def __init__(
        self, resource: str, holder: Standing | Sequence[Any] | None = None, raised: bool = False
    ) -> None:
        self.resource = resource
        self.holder = None if holder is None else _standing(holder)
        self.raised = raised
        super().__init__(resource, self.holder and _plain(self.holder), raised)

    def __bool__(self) -> bool:
        return self.raised

    def __json__(self) -> None:
        """As the result of a Celery task: null, which is as false as this is."""

    def __str__(self) -> str:
        return f"{self.resource}: skipped; {taken(self.holder)}"

    def __repr__(self) -> str:
        return f"<Skipped {self.resource}: {taken(self.holder)}>"


def _plain(holder: Standing) -> tuple[Any, ...]:
    """A standing as values that any format can carry; `_standing` makes it again from them."""
    return tuple([getattr(holder, field) for field in Standing.__match_args__])


def _standing(holder: Standing | Sequence[Any]) -> Standing:
    return holder if isinstance(holder, Standing) else Standing(*holder)


class NotHeld(InterlockError, RuntimeError):
    """Released, renewed or asked for something that the caller does not hold."""


class LeaseLost(NotHeld):
    """The lease ended before its holder let it go. Someone else may hold the resource now.

    `cause` is "lapsed" (its ttl ran out unrenewed), "refused" (the store no longer knew it), "evicted"
    (by an operator, whose words are in `reason`), "owner_ended" (the thread or task that took it has ended, and nobody
    had adopted it; `reason` names it), "max_hold" or "forked" (the parent has it).
    """

    def __init__(self, resource: str, token: int, cause: str, reason: str = "") -> None:
        super().__init__(resource, token, cause, reason)
        self.resource = resource
        self.token = token
        self.cause = cause
        self.reason = reason

    def __str__(self) -> str:
        text = {
            "lapsed": "its ttl ran out before a renewal was answered",
            "refused": "the store no longer knows it",
            "evicted": "an operator evicted it",
            "max_hold": "it was held for max_hold seconds",
            "session": "its client's session with the store has ended",
            "forked": "this process was forked from its holder",
            "owner_ended": f"its owner, {self.reason}, has ended, and leases are renewed only while their owner lives "
            "(call lease.adopt() in the thread or task that goes on with it)",
        }.get(self.cause, self.cause)
        if self.reason and self.cause != "owner_ended":
            text += f" ({self.reason})"
        return f"{self.resource}: lease with token {self.token} is lost: {text}; another may hold it now"


class Evicted(InterlockError, RuntimeError):
    """An operator took the caller's place in the queue away while it waited."""

    def __init__(self, resource: str, reason: str = "") -> None:
        super().__init__(resource, reason)
        self.resource = resource
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.resource}: evicted from the queue by an operator ({self.reason or 'no reason given'})"


class ForeignKey(InterlockError, RuntimeError):
    """An operator asked to evict what another program keeps under this name. Nothing was removed.

    `kind` is what the server calls it ("string", say), `expires` whether it would lapse by itself.
    """

    def __init__(self, resource: str, kind: str = "string", expires: bool = True) -> None:
        super().__init__(resource, kind, expires)
        self.resource = resource
        self.kind = kind
        self.expires = expires

    def __str__(self) -> str:
        text = f"{self.resource}: a key of another program ({self.kind}), not a lock of interlock; nothing was removed"
        if self.kind != "string":
            return f"{text}: only a string can be another program's lock"
        advice = "--foreign (foreign=True)"
        if not self.expires:
            advice += (
                " and --no-expiry (no_expiry=True): it would never lapse by itself, as a session or a counter"
            )
        return f"{text}; if it is a lock, evict it with {advice}"


class WouldDeadlock(InterlockError, RuntimeError):
    """What was asked for could never be granted: a reader asked to become a writer."""


class BrokenBarrier(InterlockError, threading.BrokenBarrierError):
    """The barrier was aborted, reset, timed out, or its action failed."""


class StaleToken(InterlockError, RuntimeError):
    """A guarded resource has already accepted a higher token: this holder comes too late."""

    def __init__(self, resource: str, token: int, accepted: int) -> None:
        super().__init__(resource, token, accepted)
        self.resource = resource
        self.token = token
        self.accepted = accepted

    def __str__(self) -> str:
        return (
            f"{self.resource}: token {self.token} is stale, {self.accepted} was accepted already; "
            "the lease it came from has ended and a later holder has written since"
        )


class StoreUnavailable(InterlockError, ConnectionError):
    """The store did not answer. Nobody knows whether the request was applied."""


class Unreached(StoreUnavailable):
    """There was no connection to the store: the request was not sent, or it was taken back, and nothing of it stands."""


class StoreUnfit(InterlockError, OSError):
    """The store can not be used as it is: read-only, full, corrupt, foreign, or of a later version."""


class ClientClosed(InterlockError, RuntimeError):
    """The client was closed."""
