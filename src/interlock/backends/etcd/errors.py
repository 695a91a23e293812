"""Turns what goes wrong with etcd into errors of interlock, each with one sentence that says what to do."""

from __future__ import annotations

import ssl

from interlock._support.wording import duration, printable
from interlock.backends.etcd.wire import grpc
from interlock.backends.etcd.wire.grpc import Status
from interlock.backends.etcd.wire.http2 import ProtocolError
from interlock.backends.etcd.wire.protobuf import MalformedMessage
from interlock.errors import HeldUp, InterlockError, StoreUnavailable, StoreUnfit, Unreached


class LeaseNotFound(Exception):
    """The server does not know the lease: the session that it carried has ended."""


class LeaseExists(StoreUnfit):
    """There is a lease with the id that we chose: of an earlier try, or, which nobody will ever see, a
    stranger's.
    """


class NotAuthenticated(Exception):
    """The server wants a token of an authenticated user, or a newer one."""


class OldRevision(NotAuthenticated):
    """Users or roles have changed since the token was given; nothing was done. It says nothing about the
    user.
    """


class Compacted(StoreUnavailable):
    """The revision is gone by compaction.

    We never ask for an old one, so this is a fault; asking again helps.
    """


class Broken(StoreUnavailable):
    """The connection ended before the answer: nobody knows whether the request was applied."""


class NotProcessed(Unreached):
    """The server has certainly not acted on the request; it may be sent again."""


class Advised(Unreached):
    """No connection, and the sentence says already what to do."""


class Denied(StoreUnfit):
    """The user has no right to do this."""


class Refused(StoreUnavailable):
    """The member answered that it cannot serve the request now: it has no leader or no majority, or its
    office just changes.
    """


def unreachable(label: str, why: object) -> Unreached:
    reason = str(why) or type(why).__name__
    if isinstance(why, ssl.SSLCertVerificationError):
        return Advised(
            f"{label}: cannot connect: its certificate is not trusted ({why.verify_message}); name its "
            "authority with cacert="
        )
    if isinstance(why, ssl.SSLError):
        return Advised(
            f"{label}: cannot connect: TLS failed ({why.reason or reason}); is this a port for TLS, and is "
            "the client certificate (cert=, key=) accepted?"
        )
    if isinstance(why, OSError) and why.strerror:
        reason = why.strerror
    return Unreached(f"{label}: cannot connect: {reason}")


def nobody(label: str, hosts: str, last: Exception) -> Unreached:
    """No member of a cluster could be reached; `last` says why not the last one that was tried."""
    if isinstance(last, Advised):
        return last
    return Unreached(
        f"{last}; is etcd running at {label}, and reachable from here? See: etcdctl --endpoints {hosts} "
        "endpoint health"
    )


def timeout_error(label: str, seconds: float) -> StoreUnavailable:
    return StoreUnavailable(f"{label}: no answer in {duration(seconds)}")


def not_sent(label: str, seconds: float) -> HeldUp:
    return HeldUp(f"{label}: not sent in {duration(seconds)}: too many requests of this client are under way")


def reason(error: ProtocolError | MalformedMessage) -> str:
    """Why what a server has sent cannot be read, in a few words."""
    return error.why if isinstance(error, MalformedMessage) else str(error)


def not_etcd(label: str, why: object) -> StoreUnfit:
    return StoreUnfit(
        f"{label}: this is not the client port of an etcd v3 server ({why}); check host, port, and etcd:// "
        "or etcds://"
    )


def a_proxy(label: str) -> StoreUnfit:
    return StoreUnfit(
        f"{label}: this is etcd's grpc-proxy, through which no lease can be kept: it answers keep-alives and "
        "reads by itself; name the members of the cluster in the URL"
    )


def two_clusters(one: str, other: str) -> StoreUnfit:
    return StoreUnfit(
        f"{one} and {other} are members of two clusters, which know nothing of each other's locks; name the "
        "members of one cluster in the URL"
    )


_NOT_AUTHENTICATED = (
    "user name is empty",  # authentication was switched on after we connected
    "invalid auth token",
    "auth: invalid token",
)

# Refusals that pass by themselves, whose status is UNKNOWN or another one that says nothing about that.
_NOT_NOW = (
    "not a primary lessor",  # it has just won or lost the leadership
    "not leader",
    "rpc not supported for learner",  # another member serves
    "context canceled",
    "context deadline exceeded",
)
_DROPPED = "raft proposal dropped"  # it hands its office over, or knows no leader: nothing was written


def status_error(label: str, status: Status) -> Exception:
    """The error for a call that ended with another status than OK."""
    code, said = status.code, printable(status.text).removeprefix("etcdserver: ")
    if not status.processed or _DROPPED in said:
        return NotProcessed(f"{label}: {said}")
    if code == grpc.NOT_FOUND and "lease not found" in said:
        return LeaseNotFound(said)
    if "lease already exists" in said:
        return LeaseExists(f"{label}: {said}")
    if "revision of auth store is old" in said:
        return OldRevision(said)
    if code == grpc.UNAUTHENTICATED or any(text in said for text in _NOT_AUTHENTICATED):
        return NotAuthenticated(said)
    if code in (grpc.UNAVAILABLE, grpc.DEADLINE_EXCEEDED, grpc.CANCELLED) or any(
        text in said for text in _NOT_NOW
    ):
        return Refused(f"{label}: {said}")
    if code == grpc.OUT_OF_RANGE:
        return Compacted(f"{label}: {said}")
    return _unfit(label, code, said)


def _unfit(label: str, code: int, said: str) -> InterlockError:
    if code == grpc.PERMISSION_DENIED:
        return Denied(
            f"{label}: the user may not do this ({said}); grant its role readwrite on the prefix interlock "
            "(etcdctl role grant-permission ROLE --prefix=true readwrite interlock)"
        )
    if code == grpc.RESOURCE_EXHAUSTED and "space" in said:
        return StoreUnfit(
            f"{label}: the database is full ({said}); compact and defragment it, then run: etcdctl alarm "
            "disarm"
        )
    if code == grpc.RESOURCE_EXHAUSTED:
        return StoreUnavailable(f"{label}: {said}")
    if code == grpc.UNIMPLEMENTED:
        return not_etcd(label, said)
    if "authentication failed" in said or "auth" in said:
        return StoreUnfit(f"{label}: logging in failed: {said}")
    return StoreUnfit(
        f"{label}: the server refuses the request: {said or 'no reason given'} (gRPC status {code})"
    )
