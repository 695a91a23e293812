"""What an error of the server or of its driver means, and the sentence for it."""

from __future__ import annotations

import os

from interlock._support.wording import duration
from interlock.backends.sql.dialect import Again, Broken, Demoted, NotInstalled
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached

RETRY_CODES = frozenset((1205, 1213, 3572, 1020))  # lock wait, deadlock, nowait, a row that has changed
NOT_INSTALLED_CODES = frozenset((1305, 1146))  # no such procedure, no such table
READ_ONLY = frozenset((1290, 1792, 1836, 1047))  # --read-only, a replica, a Galera node without quorum
INTERRUPTED = frozenset(
    (1927, 1969, 3024, 1028, 1053)
)  # killed, or stopped by a limit or a shutdown: it may have committed before
LOST = frozenset((2006, 2013, 2055, 1152, 1158, 1159, 1160, 1161))
FULL_HOUSE = frozenset((1040, 1203, 1226))  # too many connections, of all or of this user
KILLED = 1317  # by `kill query`


class Killed(Broken):
    """The statement was ended by `kill query`: so a subscription is woken. The connection is sound."""


SENTENCES = {
    1370: "this user may not run its procedures; it needs EXECUTE (see `interlock sql`)",
    1142: "this user lacks a right to create the tables; have `interlock sql` print the SQL, and run it as "
    "somebody who may",
    1044: "this user may not use the database of the URL, or may create no tables or procedures there; it "
    "needs EXECUTE (see `interlock sql`)",
    1227: "this user lacks a right; it needs EXECUTE, or CREATE and CREATE ROUTINE to create everything "
    "itself (see `interlock sql`)",
    1045: "user or password is wrong",
    1698: "user or password is wrong, or this user may only log in through a socket",
    1049: "the database of the URL does not exist",
    1046: "the URL names no database; write mysql://user@host/database",
    1449: "the user who created the procedures does not exist any more; have somebody else create them again "
    "(see `interlock sql`; on MySQL, drop them before)",
    1665: "binlog_format is STATEMENT, with which InnoDB cannot write at READ COMMITTED; set it to ROW or "
    "MIXED",
    1318: "its procedures are of another version of interlock; run what `interlock sql` prints",
    1054: "a table there has the name of one of ours, and other columns: it belongs to another program; "
    "choose names with ?prefix=",
    1114: "a table or the disk is full",
    1021: "the disk is full",
    1030: "the storage engine failed; is the disk full?",
    1064: "it does not understand our SQL; MariaDB 10.6 or MySQL 8.0.19 is the oldest that will do",
    1153: "a value is larger than max_allowed_packet of the server",
    1568: "the engine lends connections with a transaction open on them; leave its pool_reset_on_return "
    "as it is by default, or use isolation_level='AUTOCOMMIT'; and leave completion_type at NO_CHAIN",
    1419: "procedures may not be created while binary logging is on; see log_bin_trust_function_creators",
}
DENIED = frozenset((1044, 1142, 1227, 1370))


def server_error(label: str, code: int, said: str) -> InterlockError:
    """The error for an error that the server has sent, or for a connection that ended."""
    if code in RETRY_CODES:
        return Again(f"{label}: {said}")
    if code in NOT_INSTALLED_CODES:
        return NotInstalled(f"{label}: the tables or procedures of interlock are missing ({said})")
    if code in READ_ONLY:
        return Demoted(f"{label} takes no writes now ({said})")
    if code == KILLED:
        return Killed(f"{label}: {said}; an operator, or a limit of the server, ended it")
    if code in INTERRUPTED or code in LOST:
        return Broken(f"{label}: {said}; is the server running, and reachable?")
    if code in SENTENCES:
        return StoreUnfit(f"{label}: {SENTENCES[code]} (it says: {said})")
    return StoreUnavailable(f"{label} refused: {said} ({code})")


def connect_error(label: str, code: int, said: str) -> InterlockError:
    """The error for a connection that could not be made: nothing was sent."""
    if code in FULL_HOUSE:
        return Unreached(
            f"{label} has no connection left for us ({said}); see max_connections, and ?connections= for the "
            "share of this client"
        )
    if code in SENTENCES:
        return StoreUnfit(f"{label}: {SENTENCES[code]} (it says: {said})")
    return Unreached(f"{label}: {said}; is the server running, and reachable?")


def system_error(label: str, error: OSError) -> InterlockError:
    """The error for a connection that the system could not make, or TLS did not allow: nothing was sent."""
    kinds = [
        kind.__name__ for kind in type(error).__mro__
    ]  # by name: `ssl` is not loaded for programs without TLS
    said = str(error.strerror or error)
    if "SSLError" in kinds:
        why = str(getattr(error, "verify_message", "") or getattr(error, "reason", None) or said).rstrip(".")
        return Unreached(
            f"{label}: TLS failed ({why.replace('_', ' ').lower()}); check tls and ssl_ca in the URL"
        )
    if "gaierror" in kinds:
        return Unreached(
            f"{label}: its host cannot be looked up ({said}); check the name in the URL, and DNS on this "
            "machine"
        )
    why = os.strerror(error.errno) if error.errno else said
    return Unreached(f"{label}: {why[:1].lower()}{why[1:]}; is the server running, and reachable?")


def timeout_error(label: str, timeout: float) -> StoreUnavailable:
    return StoreUnavailable(
        f"{label} did not answer within {duration(timeout)}; it may be stopped, busy, waiting for a lock, or "
        "cut off"
    )
