"""The tokens that a caller presents to a guard: by a lease, by several leases, or by resource and number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from interlock._core.lease import Lease
from interlock._core.names import checked_name
from interlock._support.record import record
from interlock.errors import Unsupported

MAX_TOKEN = 2**63 - 1  # every database and server can store it


class Leases(Protocol):
    """A `MultiLease`: several leases that were taken together."""

    @property
    def leases(self) -> Sequence[Lease]: ...


TokenSource: TypeAlias = "Lease | Leases | Iterable[Lease] | str"
"""What a guard accepts: a lease, several leases, or the name of a resource, whose token is given beside
it.
"""


@record
class Presented:
    """One resource and the token that is presented for it."""

    resource: str
    token: int
    lease: Lease | None = None  # if it was given, and not only its numbers


def presented(lease: Lease | str, token: int | None = None, *, shared: bool = False) -> Presented:
    """Return the token of a lease that is held, or of `(resource, token)`.

    Raises `LeaseLost` or `NotHeld` if the lease is known to have ended. Unless `shared`, it refuses a lease
    that others may hold beside it: a guard that keeps the highest token would refuse all of them but the
    last.
    """
    if isinstance(lease, Lease):
        if token is not None:
            raise TypeError("a lease has its own token: give a lease, or a resource and a token")
        lease.check()
        if not shared and lease.permits < lease._claim.capacity:
            raise Unsupported(
                f"{lease.resource}: a semaphore or a read lock has several holders at once, and this guard "
                "would accept only the one with the highest token; guard an exclusive lock"
            )
        return Presented(lease.resource, lease.token, lease)
    if not isinstance(lease, str):
        raise TypeError(f"a guard needs a lease, or a resource and a token, not {type(lease).__name__}")
    if token is None:
        raise TypeError(
            f"{lease}: the name of a resource is not enough; give its token as well, or the lease"
        )
    return Presented(checked_name(lease), checked_token(token))


def presented_all(
    leases: TokenSource, token: int | None = None, *, shared: bool = False
) -> tuple[Presented, ...]:
    """Return what one lease, several leases or `(resource, token)` present, in the order of the names.

    Transactions that take several guards in one order cannot wait for each other.
    """
    if isinstance(leases, (Lease, str)):
        return (presented(leases, token, shared=shared),)
    several: Any = getattr(leases, "leases", leases)
    if not hasattr(several, "__iter__"):
        raise TypeError(f"a guard needs a lease, or a resource and a token, not {type(leases).__name__}")
    if token is not None:
        raise TypeError("leases have their own tokens: give leases, or a resource and a token")
    found = [presented(lease, shared=shared) for lease in several]
    if not found:
        raise TypeError("a guard needs at least one lease")
    return tuple(sorted(found, key=lambda each: each.resource.encode()))


def checked_token(token: object) -> int:
    """Return the token if it is an int that a guard can compare and store."""
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"a token is an int, not {type(token).__name__}")
    if not 0 < token <= MAX_TOKEN:
        # Python refuses to print an int of some thousand digits.
        shown = str(token) if abs(token) < 10**30 else "one of more than 30 digits"
        raise ValueError(f"a token is between 1 and 2**63 - 1, not {shown}; pass on the token of a lease")
    return token
