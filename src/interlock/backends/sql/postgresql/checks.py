"""Checks how a PostgreSQL server is set up. Pure: `EXAMINE` in `statements` asks for the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interlock._support.wording import duration
from interlock.backends.kit.examining import Examiner
from interlock.model import Answer, Finding

SETTINGS = ",".join(
    (
        "fsync full_page_writes synchronous_commit synchronous_standby_names statement_timeout lock_timeout "
        "idle_in_transaction_session_timeout default_transaction_isolation default_transaction_read_only "
        "server_version"
    ).split()
)
"""The settings that are asked for, as our own role has them."""

SHORTEST_MS = 1000  # a statement that has less time may fail when the server is busy
FULL_SHARE = 0.5  # of the queue of notifications

Facts = Mapping[str, str]


def check(facts: Facts, durability: str, examiner: Examiner) -> None:
    """Note every finding, and what each failure would do."""
    for one in (pooler, durable, failover, role, notify_queue):
        examiner.extend(list(one(facts, durability)))
    _expect(facts, durability, examiner)


def pooler(facts: Facts, durability: str) -> Iterator[Finding]:
    """pg-pooler: LISTEN is silent behind a pooler in transaction mode."""
    if facts.get("direct") == "off":
        yield Finding(
            "pg-pooler",
            "note",
            "a pooler stands between us and the server: where it works in transaction mode no wake-up "
            "arrives, and waiters look at the table every 20 to 250 ms instead",
            "name the server itself in the URL of programs that wait for locks",
        )
    elif facts.get("direct") == "on":
        yield Finding("pg-pooler", "good", "no pooler stands between us and the server")
    else:
        yield Finding("pg-pooler", "unknown", "the connection belongs to a pool of the program's")


def durable(facts: Facts, durability: str) -> Iterator[Finding]:
    """pg-durability: a server that loses commits in a crash lets a second holder in."""
    off = [name for name in ("fsync", "full_page_writes") if facts.get(name) == "off"]
    if off:
        yield Finding(
            "pg-durability",
            "danger",
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: a power failure may lose or damage "
            "held locks",
            f"ALTER SYSTEM SET {off[0]} = on; SELECT pg_reload_conf()",
        )
    if facts.get("claim_persistence") == "u":
        yield Finding(
            "pg-durability",
            "danger",
            "the table of locks is unlogged: after a crash it is empty, and a second holder gets in",
            "ALTER TABLE interlock_claim SET LOGGED",
        )
    elif durability == "relaxed":
        yield Finding(
            "pg-durability",
            "warning",
            "durability=relaxed in the URL: a crash within a second of a grant loses it",
            "leave durability out of the URL",
        )
    elif not off:
        commit = facts.get("synchronous_commit", "on")
        more = "; interlock waits for the disk all the same" if commit == "off" else ""
        yield Finding("pg-durability", "good", f"a lock is on the disk before it is granted{more}")


def failover(facts: Facts, durability: str) -> Iterator[Finding]:
    """pg-failover: an asynchronous standby that is promoted has missed the last grants."""
    standbys, names = facts.get("standbys", ""), facts.get("synchronous_standby_names", "")
    level = facts.get("synchronous_commit", "on")
    mend = "set synchronous_standby_names, and fail over to one of those only"
    if facts.get("in_recovery") == "true":
        yield Finding(
            "pg-failover", "danger", "this server is a standby: it grants no locks", "name the primary"
        )
    elif names and level in ("off", "local"):
        yield Finding(
            "pg-failover",
            "warning",
            f"synchronous_commit is {level}, so no standby confirms a grant, though {names!r} is named",
            "ALTER ROLE name SET synchronous_commit = on",
        )
    elif names:
        yield Finding(
            "pg-failover",
            "good",
            "a standby confirms each grant; a statement that is cancelled while it waits for the standby is "
            "visible all the same, and may not be there after a failover",
        )
    elif standbys not in ("", "0"):
        yield Finding(
            "pg-failover",
            "warning",
            f"{standbys} standbys follow asynchronously: after a failover the last grants are missing, and "
            "two may hold",
            mend,
        )
    else:
        yield Finding(
            "pg-failover",
            "note",
            "no standby follows this server, as far as it tells: while it is down, nobody gets a lock",
        )


def role(facts: Facts, durability: str) -> Iterator[Finding]:
    """pg-role: settings of the role that end our statements, or forbid them."""
    mend = "ALTER ROLE name RESET ALL, or another role for locks"
    wrong = False
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        limit = int(facts.get(name) or 0) if (facts.get(name) or "0").isdigit() else 0
        if 0 < limit < SHORTEST_MS:
            wrong = True
            told = f"{name} is {duration(limit / 1000)} for this role: locks fail when the server is busy"
            yield Finding("pg-role", "warning", told, mend)
    if facts.get("default_transaction_read_only") == "on":
        wrong = True
        told = "transactions of this role are read-only, so it can take no lock"
        yield Finding("pg-role", "danger", told, mend)
    isolation = facts.get("default_transaction_isolation", "read committed")
    if isolation != "read committed":
        wrong = True
        yield Finding(
            "pg-role",
            "note",
            f"the default isolation of this role is {isolation}: each step begins with a request more, which "
            "sets its own",
            "ALTER ROLE name SET default_transaction_isolation = 'read committed'",
        )
    if not wrong:
        yield Finding("pg-role", "good", "no setting of this role stands in the way")


def notify_queue(facts: Facts, durability: str) -> Iterator[Finding]:
    """pg-notify-queue: a full queue of notifications blocks every commit that notifies."""
    try:
        share = float(facts.get("notify_queue", ""))
    except ValueError:
        yield Finding("pg-notify-queue", "unknown", "the server does not tell how full its queue is")
        return
    if share >= FULL_SHARE:
        yield Finding(
            "pg-notify-queue",
            "danger",
            f"the queue of notifications is {share:.0%} full; when it is full, no release that wakes a "
            "waiter can commit",
            "find the session that listens in an old transaction: SELECT * FROM pg_stat_activity ORDER BY "
            "xact_start",
        )
    else:
        yield Finding("pg-notify-queue", "good", f"the queue of notifications is {share:.0%} full")


def _expect(facts: Facts, durability: str, examiner: Examiner) -> None:
    sound = facts.get("claim_persistence") != "u" and facts.get("fsync") != "off"
    crash: Answer = "yes" if facts.get("claim_persistence") != "u" else "no"
    power: Answer = "yes" if sound and durability != "relaxed" else "no"
    confirmed = facts.get("synchronous_standby_names") and facts.get("synchronous_commit") not in (
        "off",
        "local",
    )
    back = "until the server is back"
    examiner.expect("the server process dies", "yes", "no" if durability == "relaxed" else crash, back)
    examiner.expect("the power fails", "yes", power, back)
    if facts.get("standbys", "0") != "0" or facts.get("synchronous_standby_names"):
        kept: Answer = "yes" if confirmed else "no"
        examiner.expect("a standby is promoted", "yes", kept, "until clients reach it")
        examiner.expect("the network is cut", "yes", kept, "the side without a server that takes writes")
    else:
        examiner.expect("the network is cut", "yes", "yes", "the other side, until it heals")
    examiner.expect("the server's clock jumps forward", "yes", "no", "not at all")
    examiner.expect("the server's clock is set back", "yes", "yes", "longer, by what it was set back")
    examiner.expect("an operator empties the tables", "yes", "no", "not at all")
