"""Maps what Redis, TLS and the system report to errors of ours: one sentence that names the server and
says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from interlock._support.wording import duration
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply
from interlock.backends.redis.wire.scripts import failed_commands, failed_line
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached

P = ParamSpec("P")
T = TypeVar("T")

COMMANDS = (
    "eval evalsha exists get set incrby del pttl pexpire pexpireat hget hmget hset hdel zadd zrem zrange "
    "zrangebyscore zrevrangebyscore zcard zcount zscore zmscore time publish subscribe unsubscribe ping "
    "scan getrange"
)
"""The commands that interlock runs. docs/backends/redis.md names the keys and channels that an ACL must
allow as well.
"""

TOO_OLD = "lacks a command that locks need; it must speak as Redis 6.2 does, or later"
NO_SHARDED_CHANNELS = "has no sharded channels; use Redis 7 or later, or leave notices=sharded out of the URL"
NEEDS_PASSWORD = "wants a password; name it in the URL: redis://:password@host or redis://user:password@host"
MOVING = (
    "is moving these keys to another node; try again in a moment, or end the move: redis-cli --cluster fix"
)
WHAT_IS_NEEDED = "do what locks need"
NO_RIGHT = (
    f"does not let this user {WHAT_IS_NEEDED}; allow it to touch the names and channels, and to run: "
    f"{COMMANDS}"
)
NO_VOTES = (
    "keeps its votes under the key \\x1fquorum, behind the prefix, and something else is there, perhaps of "
    "an earlier version; delete that key while no lock is held"
)
NOT_OURS = (
    "has something that is no lock of interlock under this name, left as it is; if it is a lock of Redisson "
    "(a hash), a prefix would give two locks that do not exclude each other, so let all programs use the "
    "same library; if it is something else, use a prefix of your own"
)
NO_TOKENS = (
    "counts its tokens in the key \\x1ftoken, behind the prefix, and the number there is none of ours, "
    "or so high, "
    "above 7.9e15, that the next tokens could not be told apart: delete the key \\x1ftoken while no lock "
    "is held, "
    "which sets tokens back to the clock, and reset the guards that have seen higher ones"
)
IN_CLUSTER = "belongs to a Redis Cluster; use redis+cluster:// instead of redis://"

# A word of the reply -> whether waiting may help, and the message. The first match counts. Redis 6 wraps the
# errors of scripts in a sentence of its own, so the code is not always the first word.
SENTENCES: tuple[tuple[str, bool, str], ...] = (
    ("NOAUTH", False, NEEDS_PASSWORD),
    ("unauthenticated", False, NEEDS_PASSWORD),  # before login a server accepts few arguments
    ("WRONGPASS", False, "refuses this user name and password; check the URL, and ACL LIST on the server"),
    ("NOPERM", False, NO_RIGHT),
    ("The user executing the script", False, NO_RIGHT),  # how Redis 7 words it for commands within a script
    ("WRONGTYPE", False, NOT_OURS),
    ("tokens are used up", False, NO_TOKENS),
    ("would overflow", False, NO_TOKENS),
    ("not an integer", False, NO_TOKENS),
    ("LOADING", True, "is still loading its data; try again in a moment"),
    ("BUSY ", True, "is busy with a script of somebody's; end it with SCRIPT KILL, or wait"),
    ("MASTERDOWN", True, "is a replica that has lost its master; wait for the failover, or name the master"),
    (
        "CLUSTERDOWN",
        True,
        (
            "belongs to a cluster that is down, or lacks this slot; see CLUSTER INFO, and redis-cli "
            "--cluster "
            "check"
        ),
    ),
    ("TRYAGAIN", True, MOVING),
    ("ASK ", True, MOVING),
    ("READONLY", True, "is a read-only replica; name its master in the URL"),
    ("MISCONF", True, "cannot save to its disk and so refuses writes; look at its log and its free space"),
    ("NOREPLICAS", True, "has too few replicas and so refuses writes; see min-replicas-to-write"),
    ("OOM", True, "is out of memory (maxmemory) and so refuses writes; raise the limit or free some"),
    ("DENIED", False, "runs in protected mode; give it a password or a bind address, see its redis.conf"),
    ("MOVED", False, IN_CLUSTER),
    ("CROSSSLOT", False, IN_CLUSTER),
    (
        "cluster support disabled",
        False,
        "is no node of a Redis Cluster; use redis:// instead of redis+cluster://",
    ),
    ("max number of clients", True, "has reached its limit of clients; raise maxclients, or use fewer"),
    ("SPUBLISH", False, NO_SHARDED_CHANNELS),
    ("unknown command", False, TOO_OLD),
    ("syntax error", False, TOO_OLD),
    ("DB index", False, "has no database of this number; see `databases` in its redis.conf"),
)

# A problem with a certificate, or with TLS -> what to do about it.
UNTRUSTED = (
    ("mismatch", "use the host's name as it stands in the certificate"),
    ("expired", "give the server a new one, unless the clock of this machine is wrong"),
    ("not yet valid", "check the clocks of both machines"),
)
SIGNED = "name whoever signed it: ?ssl_ca_certs=/path/to/ca.pem"
FILES = "what TLS needs cannot be read; check the files that ssl_ca_certs, ssl_certfile and ssl_keyfile name"
INSECURE = (
    ("no certificate or crl found", FILES),
    ("pem", FILES),
    ("key values mismatch", FILES),
    (
        "certificate required",
        "the server wants one of yours: ?ssl_certfile=/path/to/it.pem&ssl_keyfile=/path/to/key.pem",
    ),
    ("alert certificate expired", "the server says so of yours: renew what ssl_certfile names"),
    (
        "alert unknown ca",
        "the server trusts no one who signed yours: see ssl_certfile, and its tls-ca-cert-file",
    ),
)
PLAIN = "is the server running, reachable, and this port without TLS? with TLS use rediss://, redlocks://"
NO_TLS = (
    "is this port for TLS, and does the server want a valid certificate of yours (ssl_certfile, ssl_keyfile)?"
)


def reply_error(label: str, failure: ErrorReply) -> InterlockError:
    """The error for an error reply.

    Redis does not say which command of a script this user may not run, or which key has the wrong type, but
    in which line of the script that is.
    """
    text = failure.text
    for word, passing, sentence in SENTENCES:
        if word in text:
            if sentence is NO_RIGHT and (commands := failed_commands(text)):
                sentence = NO_RIGHT.replace(
                    WHAT_IS_NEEDED, f"run {' or '.join(commands)}, which locks need", 1
                )
            elif sentence is NOT_OURS and "quorum" in failed_line(text):
                sentence = NO_VOTES
            message = f"{label} {sentence} (it says: {_short(text)})"
            return StoreUnavailable(message) if passing else StoreUnfit(message)
    return StoreUnavailable(f"{label} refused: {_short(text)}")


def unreachable(label: str, why: object) -> StoreUnavailable:
    return StoreUnavailable(
        f"{label}: {why or 'the connection broke'}; is the server running, and reachable?"
    )


def as_unreached(error: InterlockError) -> InterlockError:
    """The error of a caller that could not connect, so that nothing was sent."""
    return Unreached(str(error)) if type(error) is StoreUnavailable else error


def connect_error(label: str, error: OSError, *, tls: bool) -> InterlockError:
    """The error for a failed connection: what the system reported, and what to do about it."""
    # By name: `ssl` is not loaded for programs without TLS.
    kinds = [kind.__name__ for kind in type(error).__mro__]
    said = str(error.strerror or error)
    if "SSLCertVerificationError" in kinds:
        why = getattr(error, "verify_message", said).rstrip(".")
        advice = next((advice for word, advice in UNTRUSTED if word in why), SIGNED)
        return StoreUnavailable(f"{label}: its certificate is not trusted ({why}); {advice}")
    if "SSLError" in kinds:
        # The message ends with a line of its C source.
        told = str(getattr(error, "reason", None) or said).partition(" (_ssl")[0]
        why = told.replace("_", " ").lower()
        advice = next((advice for word, advice in INSECURE if word in why), NO_TLS)
        return StoreUnavailable(f"{label}: TLS failed ({why}); {advice}")
    if "gaierror" in kinds:
        return StoreUnavailable(
            f"{label}: its host cannot be looked up ({said}); check the name in the URL, and DNS on this "
            "machine"
        )
    if tls and isinstance(error, (FileNotFoundError, PermissionError)):
        return StoreUnfit(f"{label}: {FILES} ({said})")
    why = os.strerror(error.errno) if error.errno else said
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        # This is how a server ends a handshake when one side speaks TLS and the other does not.
        return StoreUnavailable(f"{label}: {why}; {NO_TLS if tls else PLAIN}")
    return unreachable(label, why)


def timeout_error(label: str, timeout: float, *reasons: str) -> StoreUnavailable:
    likely = ["it may be stopped", "busy with a slow command", *reasons]
    return StoreUnavailable(
        f"{label} did not answer within {duration(timeout)}; {', '.join(likely)}, or cut off"
    )


def protocol_error(label: str, error: Exception) -> StoreUnfit:
    return StoreUnfit(f"{label} does not speak the protocol of Redis ({error}); check host, port and TLS")


def unexpected_answer(label: str, error: Exception) -> StoreUnfit:
    """The error for a reply that no command or script of ours has: it has another type, or other parts."""
    return StoreUnfit(
        f"{label} gave an answer that interlock does not understand ({type(error).__name__}: "
        f"{_short(str(error))}); is it a Redis server, and does another program use the same names?"
    )


def understood(label: str, read: Callable[P, T], *args: P.args, **settings: P.kwargs) -> T:
    """What `read` makes of a reply; an error of ours if the reply is not of the shape that it takes apart."""
    try:
        return read(*args, **settings)
    except InterlockError:
        raise
    except MALFORMED as error:
        raise unexpected_answer(label, error) from error


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


def merged_error(before: StoreUnavailable | None, error: StoreUnavailable) -> StoreUnavailable:
    """The error for a request after one more attempt. Once it may have arrived, it never counts as unsent
    again.

    Otherwise nobody would take back the claim that it made, and all others would wait until its ttl ends.
    """
    if before is None or isinstance(before, Unreached) or not isinstance(error, Unreached):
        return error
    return StoreUnavailable(str(error))
