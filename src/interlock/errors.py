"""The exceptions of interlock. Each carries data as attributes and makes its sentence from them.

An error is also the builtin exception that it resembles, so code written for `threading` keeps working:
`AcquireTimeout` is a `TimeoutError`, `NotHeld` a `RuntimeError`, `StoreUnavailable` a
`ConnectionError`, `InvalidName` a `ValueError`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from interlock._support.wording import counted, duration, held, printable, taken
from interlock.model import EVERYTHING, Standing


class InterlockError(Exception):
    """The base class of all errors of interlock.

    An error can be sent from a worker process to its parent by pickle, or be made again as
    `type(error)(*error.args)`: its args are plain data, which JSON can carry (Celery sends results so).
    """

    def __str__(self) -> str:
        return printable(super().__str__())  # it may quote what a server or another program said

    def __repr__(self) -> str:
        # Task queues log the repr, and the default one would show only the args.
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[InterlockError], args: tuple[Any, ...], data: dict[str, Any]) -> InterlockError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(data)
    return error


class InvalidName(InterlockError, ValueError):
    """The name of a resource is empty or too long, or it contains a control character or a lone surrogate."""


class InvalidURL(InterlockError, ValueError):
    """The URL names no store that interlock knows, or has an option that the store does not know."""


class InvalidSetting(InterlockError, ValueError):
    """A ttl, timeout, capacity or other setting is out of range."""


class Unsupported(InterlockError, ValueError):
    """The store cannot do what was asked for."""


class SettingsMismatch(InterlockError, ValueError):
    """Contenders use different settings for the same resource: its capacity, the count of a latch, the
    parties of a barrier.
    """

    def __init__(self, resource: str, asked: int, standing: int, setting: str = "capacity") -> None:
        super().__init__(resource, asked, standing, setting)
        self.resource = resource
        self.asked = asked
        self.standing = standing
        self.setting = setting

    def __str__(self) -> str:
        if self.setting == "count":
            return (
                f"{self.resource}: asked for a count of {self.asked}, but the latch stands with a count of "
                f"{self.standing}; all must use the same count, or reset() it first"
            )
        if self.setting == "parties":
            return (
                f"{self.resource}: asked for {self.asked} parties, but the barrier stands with "
                f"{self.standing} parties; all must use the same number"
            )
        return (
            f"{self.resource}: asked for {_kind(self.asked)}, but live claims stand under "
            f"{_kind(self.standing)}; all contenders must use the same kind of lock and the same capacity"
        )


def _kind(capacity: int) -> str:
    """A capacity as the user knows it: that of a read-write lock is nobody's setting."""
    return "a read-write lock" if capacity == EVERYTHING else f"capacity {capacity}"


class AcquireTimeout(InterlockError, TimeoutError):
    """The lease was not granted in time. The error names the holders, and says how many claims are ahead."""

    def __init__(
        self,
        resource: str,
        waited: float,
        ahead: int = 0,
        holders: Iterable[Standing | Sequence[Any]] = (),
    ) -> None:
        super().__init__(
            resource
        )  # one argument only: an OSError takes a second and third one for errno and filename
        self.resource = resource
        self.waited = waited
        self.ahead = ahead
        self.holders = tuple(_standing(holder) for holder in holders)
        self.args = (resource, waited, ahead, tuple(_plain(holder) for holder in self.holders))

    def __str__(self) -> str:
        parts = [f"{self.resource}: not acquired in {duration(self.waited)}"]
        if self.ahead > 0:  # holders count as well; 0: the store has not said
            parts.append(f"{counted(self.ahead, 'claim')} ahead")
        parts += [held(holder) for holder in self.holders[:3]] or ["the holder is not known"]
        if more := len(self.holders[3:]):
            parts.append(f"and {counted(more, 'more holder')}")
        return "; ".join(parts)


class Skipped(InterlockError):
    """A job of `client.once` was not run, because another worker runs it, or began it less than `min_hold`
    seconds ago.

    A function decorated with `client.once` returns this object, and it is false: `if not job(): ...`. A `with
    client.once(...)` raises it, because a `with` cannot skip its body. Then it is true, as all other
    exceptions are, because code that handles errors tests for that.
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
        """Serialized as the result of a Celery task, it is null, which is false as well."""

    def __str__(self) -> str:
        return f"{self.resource}: skipped; {taken(self.holder)}"

    def __repr__(self) -> str:
        return f"<Skipped {self.resource}: {taken(self.holder)}>"


def _plain(holder: Standing) -> tuple[Any, ...]:
    """Turn a standing into plain values, which any format can carry. `_standing` is the inverse."""
    return tuple([getattr(holder, field) for field in Standing.__match_args__])


def _standing(holder: Standing | Sequence[Any]) -> Standing:
    return holder if isinstance(holder, Standing) else Standing(*holder)


class NotHeld(InterlockError, RuntimeError):
    """The caller released, renewed or used a lease that it does not hold."""


class LeaseLost(NotHeld):
    """The lease ended before its holder released it. Another may hold the resource now.

    `cause` is one of these:

    - "lapsed": its ttl passed without an answered renewal;
    - "refused": the store no longer knows it;
    - "evicted": an operator removed it, for the reason in `reason`;
    - "owner_ended": the thread or task that took it has ended, and no other has adopted it; `reason` names
      the owner;
    - "max_hold": it was held for `max_hold` seconds;
    - "session": the session of its client has ended;
    - "forked": this process was forked from the holder, and the parent has the lease.
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
            "owner_ended": f"its owner, {printable(self.reason)}, has ended, and leases are renewed only "
            "while their "
            "owner lives (call lease.adopt() in the thread or task that goes on with it)",
        }.get(self.cause, self.cause)
        if self.reason and self.cause != "owner_ended":
            text += f" ({printable(self.reason)})"
        return f"{self.resource}: lease with token {self.token} is lost: {text}; another may hold it now"


class Evicted(InterlockError, RuntimeError):
    """An operator removed the caller from the queue while it waited."""

    def __init__(self, resource: str, reason: str = "") -> None:
        super().__init__(resource, reason)
        self.resource = resource
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.resource}: evicted from the queue by an operator "
            f"({printable(self.reason) or 'no reason given'})"
        )


class ForeignKey(InterlockError, RuntimeError):
    """An operator asked to evict a key that another program keeps under this name. Nothing was removed.

    `kind` is the type that the server gives for it, such as "string"; `expires` says whether it would lapse
    by itself.
    """

    def __init__(self, resource: str, kind: str = "string", expires: bool = True) -> None:
        super().__init__(resource, kind, expires)
        self.resource = resource
        self.kind = kind
        self.expires = expires

    def __str__(self) -> str:
        text = (
            f"{self.resource}: a key of another program ({printable(self.kind)}), not a lock of interlock; "
            "nothing was removed"
        )
        if self.kind not in ("string", "node"):  # of Redis, and of ZooKeeper
            return f"{text}: only a string can be another program's lock"
        advice = "--foreign (foreign=True)"
        if not self.expires:
            advice += (
                " and --no-expiry (no_expiry=True): it would never lapse by itself, as a session or a counter"
            )
        return f"{text}; if it is a lock, evict it with {advice}"


class WouldDeadlock(InterlockError, RuntimeError):
    """The request could never be granted: a reader asked to become a writer, or to adopt a second lease of
    the same lock.
    """


class BrokenBarrier(InterlockError, threading.BrokenBarrierError):
    """The barrier was aborted or reset, a party timed out or died, or the action failed."""


class StaleToken(InterlockError, RuntimeError):
    """The guarded resource has accepted another token since: the lease that this one came from has ended.

    `accepted` is the other token; 0 if it is not known, because the guard asked only whether the claim still
    stands. It may be the lower one only where marks are compared: then that holder has marked the row last.
    """

    def __init__(self, resource: str, token: int, accepted: int) -> None:
        super().__init__(resource, token, accepted)
        self.resource = resource
        self.token = token
        self.accepted = accepted

    def __str__(self) -> str:
        if not self.accepted:
            return f"{self.resource}: token {self.token} is stale: the claim it came from no longer stands"
        if self.accepted <= self.token:
            return (
                f"{self.resource}: token {self.token} is refused, because a holder with token "
                f"{self.accepted} has marked the row since"
            )
        return (
            f"{self.resource}: token {self.token} is stale, {self.accepted} was accepted already; "
            "the lease it came from has ended and a later holder has written since"
        )


class StoreUnavailable(InterlockError, ConnectionError):
    """The store did not answer. It is unknown whether the request was applied."""


class Unreached(StoreUnavailable):
    """There was no connection to the store.

    The request was not sent, or was taken back: it has had no effect.
    """


class HeldUp(Unreached):
    """The request was not sent in its time, because so many of the same client were under way before it.

    The store does answer.
    """


class StoreUnfit(InterlockError, OSError):
    """The store cannot be used in its present state: it is read-only, full, corrupt, another program's, or
    of a later version.
    """


class ClientClosed(InterlockError, RuntimeError):
    """The client was closed."""
