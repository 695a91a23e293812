"""SQLSTATEs and connection failures of PostgreSQL as errors of interlock: one sentence that says what to
do about it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from interlock._support.wording import duration, one_sentence
from interlock.backends.sql.dialect import Again, Broken, Demoted, NotInstalled
from interlock.errors import InterlockError, InvalidSetting, StoreUnavailable, StoreUnfit, Unreached

ISOLATION, PINNED = "IL001", "IL002"  # raised by functions.sql
MISSING = ("42883", "42P01", "3F000")  # a function, a table or a schema does not exist
# Serialization failure, deadlock, a statement's timeout (set by the user or an operator who cancelled it):
# all of it was rolled back.
REPEAT = ("40001", "40P01", "57014", PINNED)
DEMOTED = ("25006", "57P03")  # read-only; starting up
ENDED = (
    "57P01",
    "57P02",
    "57P04",
    "57P05",
    "08006",
    "25P03",
    "25P04",
)  # the server ends the session: shutdown, crash, limits of idle time
BUSY = ("53300", "53200", "53000")  # too many connections, out of memory
RIGHTS = ("42501",)
# libpq's words for a server that will not do now, and may in a moment: it is starting, or it takes no writes
# and `target_session_attrs` asks for them.
WAITS = ("session is read-only", "server is in hot standby mode", "the database system is ")
CREDENTIALS = ("28000", "28P01", "3D000")  # role, password, database


def state_error(label: str, state: str, message: str) -> InterlockError:
    """The error for an answer of the server that is an error.

    The transaction was rolled back: nothing was done.
    """
    if state in MISSING:
        return NotInstalled(f"{label}: {message}")
    if state == PINNED:
        return Again(
            f"{label}: the claim's row is locked by an open transaction, such as that of a guard; end it "
            "first"
        )
    if state in REPEAT:
        return Again(f"{label}: {message}")
    if state in DEMOTED:
        return Demoted(f"{label}: {message}")
    if state in ENDED:
        return lost(label, message)
    if state in RIGHTS:
        return unfit(
            f"{label}: {message}; an owner of the tables can grant what is missing: `interlock sql URL "
            "--role NAME` prints the statements",
            errno.EACCES,
        )
    if state == "42703":  # no such column
        return unfit(
            f"{label}: a table there has the name of one of ours, and other columns ({message}): it belongs "
            "to another program; choose a schema for interlock alone with ?schema="
        )
    if state == "55P03":
        return Unreached(
            f"{label}: another session kept the lock of this resource for 10 seconds; look for one that is "
            "stopped in a transaction (pg_locks, locktype advisory)"
        )
    if state in ("53100", "54000"):
        return unfit(f"{label}: {message}; free some space and try again", errno.ENOSPC)
    if state in ("22021", "22P05"):
        return InvalidSetting(f"{label}: {message}")
    if state in BUSY:
        return Unreached(f"{label}: {message}")
    return StoreUnavailable(f"{label}: {message} (SQLSTATE {state or 'unknown'})")


def connect_error(label: str, message: str) -> InterlockError:
    """The error for a connection that could not be made, from libpq's words: it has no code for this."""
    said = one_sentence(message)
    low = said.lower()
    if any(words in low for words in ("authentication failed", "no password supplied", "no pg_hba.conf")):
        return unfit(f"{label}: {said}; check user, password and pg_hba.conf", errno.EACCES)
    if ('role "' in low or 'database "' in low) and "does not exist" in low:
        return unfit(f"{label}: {said}", errno.ENOENT)
    if "certificate" in low or "does not support ssl" in low:
        return unfit(f"{label}: {said}; check sslmode and the certificates", errno.EACCES)
    if any(words in low for words in WAITS):
        return Demoted(f"{label}: {said}")
    return Unreached(f"{label}: {said}")


def none_reached(label: str, failures: Sequence[StoreUnavailable]) -> StoreUnavailable:
    """The error if none of several servers, or of the addresses of one, could be reached."""
    if len(failures) == 1:
        return failures[0]
    said = "; ".join(dict.fromkeys(str(each).removeprefix(f"{label}: ") for each in failures))
    promising = any(isinstance(each, Demoted) for each in failures)
    return (Demoted if promising else Unreached)(f"{label}: {said}")


def unfit(sentence: str, number: int = errno.EINVAL) -> StoreUnfit:
    error = StoreUnfit(sentence)
    error.errno = number
    return error


def lost(label: str, message: str) -> Broken:
    return Broken(f"{label}: the connection was lost: {one_sentence(message)}")


def late(label: str, timeout: float) -> StoreUnavailable:
    return StoreUnavailable(f"{label}: no answer within {duration(timeout)}")
