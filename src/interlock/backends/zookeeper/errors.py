"""Turns errors of ZooKeeper and kazoo into errors of interlock, each one sentence that says what to do."""

from __future__ import annotations

import struct

from interlock._support.wording import printable
from interlock.backends.zookeeper.library import exceptions
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached

BROKEN: tuple[type[Exception], ...] = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.ConnectionDropped,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
    exceptions.OperationTimeoutError,
)


class CutOff(StoreUnavailable):
    """The connection or the session ended before the answer."""


class SessionReplaced(Unreached):
    """The session was replaced by another one before anything was asked in it."""


QUOTA: type[Exception] = exceptions.QuotaExceededError
"""Sent by ZooKeeper 3.7 and later, with `zookeeper.enforceQuota=true`."""

UNREADABLE = (struct.error, ValueError, TypeError, LookupError)
"""What kazoo raises when it reads an answer that ZooKeeper would not give."""


def translated(label: str, error: Exception) -> InterlockError:
    """The error of interlock for one that a request was answered with."""
    if isinstance(error, InterlockError):
        return error
    if isinstance(error, BROKEN):
        return CutOff(f"{label}: the connection or the session ended before the answer ({_name(error)})")
    if isinstance(error, exceptions.AuthFailedError):
        return refused(label)
    if isinstance(error, exceptions.NoAuthError):
        return StoreUnfit(
            f"{label}: the ACL of a node there forbids this; give the credentials that it was made with "
            "(zookeeper://user:password@...), or another chroot"
        )
    if isinstance(error, exceptions.InvalidACLError):
        return StoreUnfit(
            f"{label}: the server refuses the ACL; acl=creator needs credentials, acl=open does not"
        )
    if isinstance(error, QUOTA):
        return StoreUnavailable(f"{label}: {_quota('a node there')}")
    if isinstance(error, exceptions.EphemeralOnLocalSessionError):
        return StoreUnfit(
            f"{label}: the servers give local sessions, which hold no locks; set "
            "localSessionsUpgradingEnabled=true on all of them"
        )
    if isinstance(error, exceptions.NotReadOnlyCallError):
        return StoreUnavailable(f"{label}: the server is cut off from the others and only reads")
    if isinstance(error, UNREADABLE):
        return unreadable(label, printable(f"{_name(error)}: {error}"))
    return StoreUnavailable(printable(f"{label}: ZooKeeper answered {_name(error)} {error}".rstrip()))


def guard_refused(resource: str, path: str, error: Exception) -> InterlockError:
    """The error for a guard whose own operation on the node of a resource's token was refused."""
    said = f"{resource}: the token was not noted, and nothing was written: "
    if isinstance(error, exceptions.NoAuthError):
        return StoreUnfit(
            f"{said}the ACL of {path}, or of a node above it, forbids that to this KazooClient; give it the "
            "credentials that the node was made with, or give the guard another root"
        )
    if isinstance(error, exceptions.InvalidACLError):
        return StoreUnfit(
            f"{said}the server refuses the default_acl of this KazooClient; "
            "an ACL of the creator needs auth_data"
        )
    if isinstance(error, BROKEN):
        return Unreached(f"{said}ZooKeeper did not answer ({_name(error)})")
    if isinstance(error, QUOTA):
        return StoreUnavailable(f"{said}{_quota(path)}")
    return StoreUnavailable(printable(f"{said}ZooKeeper answered {_name(error)} {error}".rstrip()))


def _quota(path: str) -> str:
    return (
        f"a quota on {path} or on a node above it is used up; "
        "raise it (setquota), or remove nodes that it counts"
    )


def cut_off(error: Exception | None) -> bool:
    """Whether a request was answered with the end of its connection, or of the session."""
    return isinstance(error, BROKEN) or type(error) is Unreached


def unreadable(label: str, why: str) -> StoreUnfit:
    return StoreUnfit(f"{label}: an answer cannot be read ({why}); is this a ZooKeeper server?")


def refused(label: str) -> StoreUnfit:
    return StoreUnfit(f"{label}: the server refused the credentials; check user, password and SASL options")


def _name(error: Exception) -> str:
    return type(error).__name__
