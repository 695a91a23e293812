"""Checks how a MariaDB or MySQL server is set up. Pure: the questions are sent by the step `examine`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interlock.backends.kit.examining import Examiner
from interlock.model import Answer, Finding

NAMES = (
    "innodb_flush_log_at_trx_commit innodb_doublewrite sync_binlog log_bin read_only super_read_only "
    "wsrep_on wsrep_sync_wait version hostname innodb_lock_wait_timeout rpl_semi_sync_master_enabled"
).split()

QUESTIONS = (
    f"show global variables where variable_name in ({', '.join(repr(name) for name in NAMES)})",
    "show global status where variable_name in ('wsrep_cluster_size', 'wsrep_ready')",
    (
        "select 'engine', engine from information_schema.tables where table_schema = database() and "
        "table_name = @claim@ union all select 'hostname again', @@hostname"
    ),
)
"""Both products answer these; what one of them does not know has no row."""

Facts = Mapping[str, str]


def check(facts: Facts, examiner: Examiner) -> None:
    """Note every finding, and what each failure would do."""
    for one in (galera, durable, role, engine):
        examiner.extend(list(one(facts)))
    crash: Answer = "no" if facts.get("innodb_flush_log_at_trx_commit") == "0" else "yes"
    power: Answer = "yes" if facts.get("innodb_flush_log_at_trx_commit") == "1" else "no"
    back = "until the server is back"
    examiner.expect("the server process dies", "yes", crash, back)
    examiner.expect("the power fails", "yes", power, back)
    examiner.expect("a replica is promoted", "yes", "no", "until clients reach it")
    examiner.expect("the network is cut", "yes", "yes", "the other side, until it heals")
    examiner.expect("the server's clock jumps forward", "yes", "no", "not at all")
    examiner.expect("the server's clock is set back", "yes", "yes", "longer, by what it was set back")
    examiner.expect("an operator empties the tables", "yes", "no", "not at all")


def _on(facts: Facts, name: str) -> bool:
    return facts.get(name, "").upper() in ("ON", "1")


def galera(facts: Facts) -> Iterator[Finding]:
    """mysql-galera: several nodes that take writes, each with a clock of its own."""
    if not _on(facts, "wsrep_on"):
        yield Finding("mysql-galera", "good", "the server is no node of a Galera cluster")
        return
    size = facts.get("wsrep_cluster_size", "an unknown number of")
    yield Finding(
        "mysql-galera",
        "warning",
        f"the server is one of {size} nodes of a Galera cluster: locks hold across them only as far as their "
        "clocks agree, conflicts appear as deadlocks and are repeated, and no wake-up crosses nodes",
        "let all programs use one node for locks",
    )


def durable(facts: Facts) -> Iterator[Finding]:
    """mysql-durability: a server that loses commits in a crash lets a second holder in."""
    flush, binlog = facts.get("innodb_flush_log_at_trx_commit"), facts.get("sync_binlog")
    if flush is None:
        told = "the server does not tell innodb_flush_log_at_trx_commit"
        yield Finding("mysql-durability", "unknown", told)
    elif flush != "1":
        what = "a crash of the server" if flush == "0" else "a power failure"
        yield Finding(
            "mysql-durability",
            "danger",
            f"innodb_flush_log_at_trx_commit is {flush}: {what} loses the grants of the last second, and a "
            "second holder gets in",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's configuration",
        )
    elif _on(facts, "log_bin") and binlog != "1":
        yield Finding(
            "mysql-durability",
            "note",
            f"sync_binlog is {binlog}: after a power failure a replica may lack grants that the server has",
            "SET GLOBAL sync_binlog = 1",
        )
    else:
        yield Finding("mysql-durability", "good", "a lock is on the disk before it is granted")


def role(facts: Facts) -> Iterator[Finding]:
    """mysql-role: a server that takes no writes, or another server behind each connection."""
    hosts = {facts[name] for name in ("hostname", "hostname again") if name in facts}
    if _on(facts, "read_only") or _on(facts, "super_read_only"):
        told = "the server is read-only: it grants no locks"
        yield Finding("mysql-role", "danger", told, "name the primary in the URL")
    elif len(hosts) > 1:
        yield Finding(
            "mysql-role",
            "danger",
            f"two questions were answered by two servers ({', '.join(sorted(hosts))}): a proxy divides them, "
            "and locks on two servers do not exclude each other",
            "send the user of locks to the primary only, in the rules of the proxy",
        )
    else:
        yield Finding("mysql-role", "good", "the server takes writes")


def engine(facts: Facts) -> Iterator[Finding]:
    """mysql-names: an engine without transactions keeps no promise."""
    found = facts.get("engine")
    if found is None:
        yield Finding("mysql-names", "note", "the tables do not exist yet; the first lock creates them")
    elif found.lower() != "innodb":
        yield Finding(
            "mysql-names",
            "danger",
            f"the table of locks has the engine {found}, which has no transactions",
            "ALTER TABLE interlock_claim ENGINE = InnoDB",
        )
    else:
        yield Finding("mysql-names", "good", "the tables are InnoDB's")
