"""What databases, etcd, ZooKeeper and the place of a lock file say of themselves, and what follows for locks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from interlock._support import clock
from interlock.backends.etcd import checks as etcd
from interlock.backends.etcd.checks import MemberFacts
from interlock.backends.kit.examining import Examiner
from interlock.backends.sql.mysql import checks as mysql
from interlock.backends.sql.postgresql import checks as postgresql
from interlock.backends.sql.sqlite import checks as sqlite
from interlock.backends.zookeeper import checks as zookeeper
from interlock.backends.zookeeper.checks import ServerFacts
from interlock.model import Finding

POSTGRESQL = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "in_recovery": "false",
    "notify_queue": "0",
    "standbys": "0",
    "direct": "on",
    "claim_persistence": "p",
}


def examined(
    check: Callable[[Mapping[str, str], Examiner], object], facts: Mapping[str, str]
) -> list[Finding]:
    examiner = Examiner(clock.now, 5.0)
    check(facts, examiner)
    return list(examiner.result().findings)


def of_postgresql(durability: str = "durable", **facts: str) -> dict[str, str]:
    found = examined(lambda said, to: postgresql.check(said, durability, to), {**POSTGRESQL, **facts})
    return {finding.id: finding.severity for finding in found}


def test_a_sound_postgresql_alone_is_good() -> None:
    found = of_postgresql()
    assert found.pop("pg-failover") == "note"
    assert set(found.values()) == {"good"}


@pytest.mark.parametrize(
    ("facts", "id", "expected"),
    [
        ({"direct": "off"}, "pg-pooler", "note"),
        ({"fsync": "off"}, "pg-durability", "danger"),
        ({"full_page_writes": "off"}, "pg-durability", "danger"),
        ({"claim_persistence": "u"}, "pg-durability", "danger"),
        ({"synchronous_commit": "off"}, "pg-durability", "good"),  # raised for each commit that needs it
        ({"durability": "relaxed"}, "pg-durability", "warning"),
        ({"standbys": "1"}, "pg-failover", "warning"),
        ({"synchronous_standby_names": "s1"}, "pg-failover", "good"),
        ({"synchronous_standby_names": "s1", "synchronous_commit": "local"}, "pg-failover", "warning"),
        ({"in_recovery": "true"}, "pg-failover", "danger"),
        ({"statement_timeout": "200"}, "pg-role", "warning"),
        ({"statement_timeout": "5000"}, "pg-role", "good"),
        ({"default_transaction_read_only": "on"}, "pg-role", "danger"),
        ({"default_transaction_isolation": "serializable"}, "pg-role", "note"),
        ({"notify_queue": "0.7"}, "pg-notify-queue", "danger"),
        ({"notify_queue": ""}, "pg-notify-queue", "unknown"),
    ],
)
def test_what_postgresql_tells(facts: dict[str, str], id: str, expected: str) -> None:
    assert of_postgresql(**facts)[id] == expected


MYSQL = {
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "0",
    "log_bin": "OFF",
    "read_only": "OFF",
    "wsrep_on": "OFF",
    "hostname": "db",
    "hostname again": "db",
    "engine": "InnoDB",
}


def test_a_sound_mariadb_is_good() -> None:
    assert {one.severity for one in examined(mysql.check, MYSQL)} == {"good"}


@pytest.mark.parametrize(
    ("facts", "id", "expected"),
    [
        ({"innodb_flush_log_at_trx_commit": "2"}, "mysql-durability", "danger"),
        ({"innodb_flush_log_at_trx_commit": "0"}, "mysql-durability", "danger"),
        ({"log_bin": "ON"}, "mysql-durability", "note"),
        ({"read_only": "ON"}, "mysql-role", "danger"),
        ({"read_only": "1"}, "mysql-role", "danger"),
        ({"hostname again": "other"}, "mysql-role", "danger"),
        ({"wsrep_on": "ON", "wsrep_cluster_size": "3"}, "mysql-galera", "warning"),
        ({"engine": "MyISAM"}, "mysql-names", "danger"),
    ],
)
def test_what_mariadb_tells(facts: dict[str, str], id: str, expected: str) -> None:
    found = {one.id: one.severity for one in examined(mysql.check, {**MYSQL, **facts})}
    assert found[id] == expected


@pytest.mark.parametrize(
    ("level", "crash", "power"), [("1", "yes", "yes"), ("2", "yes", "no"), ("0", "no", "no")]
)
def test_what_a_crash_costs_follows_the_flush_of_the_log(level: str, crash: str, power: str) -> None:
    examiner = Examiner(clock.now, 5.0)
    mysql.check({**MYSQL, "innodb_flush_log_at_trx_commit": level}, examiner)
    holders = {one.failure: one.one_holder for one in examiner.result().outlooks}
    assert holders["the server process dies"] == crash
    assert holders["the power fails"] == power


# -- etcd and ZooKeeper --------------------------------------------------------------------------


def member(
    version: str = "3.5.30", size: int = 1 << 20, alarms: tuple[tuple[int, int], ...] = ()
) -> MemberFacts:
    listed = (("a", False), ("b", False), ("c", False))
    return MemberFacts("etcd://a", version, 1, 1, size, alarms, listed)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.4.23", "danger"), ("3.5.12", "danger"), ("3.5.20", "note"), ("3.5.28", "good"), ("3.6.9", "good"),
        ("", "unknown"),
    ],
)  # fmt: skip
def test_the_version_of_each_member_counts(version: str, expected: str) -> None:
    assert [one.severity for one in etcd.versions([member(version)])] == [expected]


def test_one_old_member_of_three_is_enough() -> None:
    found = list(etcd.versions([member(), member("3.4.23"), member()]))
    assert [one.severity for one in found] == ["danger"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (member(), "good"),
        (member(alarms=((1, etcd.NO_SPACE),)), "danger"),
        (member(alarms=((1, etcd.CORRUPT),)), "danger"),
        (member(size=1900 << 20), "warning"),
    ],
)
def test_alarms_and_space_are_told(facts: MemberFacts, expected: str) -> None:
    assert [one.severity for one in etcd.space([facts])] == [expected]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([("a", False)], {"warning"}),
        ([("a", False), ("b", False)], {"note"}),
        ([("a", False), ("b", False), ("c", False)], {"good"}),
        ([("a", False), ("b", False), ("c", False), ("d", True)], {"note", "good"}),
    ],
)
def test_who_votes_is_counted(listed: list[tuple[str, bool]], expected: set[str]) -> None:
    facts = MemberFacts("etcd://a", "3.5.30", 1, 1, 0, (), tuple(listed))
    assert {one.severity for one in etcd.members([facts])} == expected


@pytest.mark.parametrize(("granted", "expected"), [(30.0, "good"), (20.0, "warning"), (40.0, "note")])
def test_a_session_that_differs_from_what_was_asked_for_is_told(granted: float, expected: str) -> None:
    assert [one.severity for one in zookeeper.session(granted, 30.0)] == [expected]


def server(
    mode: str = "follower", conf: dict[str, str] | None = None, *, read_only: bool = False
) -> ServerFacts:
    return ServerFacts("a:2181", mode, conf or {}, read_only)


THREE = {"server.1": "a:2888:3888", "server.2": "b:2888:3888", "server.3": "c:2888:3888"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([server(conf=THREE), server("leader", THREE), server(conf=THREE)], {"good"}),
        ([server(conf={"forceSync": "no", **THREE})] * 3, {"danger"}),
        ([server(conf=THREE, read_only=True), server(conf=THREE), server(conf=THREE)], {"danger"}),
        ([server("standalone")] * 3, {"warning"}),
        ([server("")] * 3, {"unknown"}),
        ([server(conf=THREE), server(""), server(conf=THREE)], {"unknown"}),
    ],
)
def test_what_servers_of_an_ensemble_tell(found: list[ServerFacts], expected: set[str]) -> None:
    assert {one.severity for one in zookeeper.ensemble(found, 3)} == expected


# -- the place of a lock file --------------------------------------------------------------------


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No container, wherever the tests run."""
    monkeypatch.setattr(sqlite, "CONTAINER_MARKS", ())


@pytest.mark.parametrize(("kind", "expected"), [("ext4", "good"), ("nfs4", "danger"), ("", "unknown")])
@pytest.mark.usefixtures("outside")
def test_a_network_filesystem_is_a_danger(
    kind: str, expected: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "filesystem", lambda folder: kind)
    examiner = Examiner(clock.now, 5.0)
    sqlite.examine(f"{tmp_path}/locks.db", True, examiner)
    found = {one.id: one.severity for one in examiner.result().findings}
    assert found["sqlite-filesystem"] == expected
