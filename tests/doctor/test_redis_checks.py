"""What a Redis server says of itself, and what follows for locks."""

from __future__ import annotations

import pytest

from interlock.backends.redis import checks
from interlock.backends.redis.checks import Facts, findings_of
from interlock.backends.redis.cluster import checks as cluster
from interlock.backends.redis.cluster.checks import ClusterFacts, Node
from interlock.backends.redis.sentinel import checks as sentinel
from interlock.backends.redis.sentinel.checks import SentinelFacts
from interlock.backends.redlock import checks as redlock
from interlock.model import Finding

INFO = {
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": "100",
    "aof_enabled": "1",
    "role": "master",
}
CONFIG: dict[str, str | None] = {
    "appendfsync": "always",
    "client-output-buffer-limit": "normal 0 0 0 slave 1 1 60 pubsub 33554432 8388608 60",
    "min-replicas-to-write": "0",
}


def facts(label: str = "Redis at a:1", *, offsets: tuple[float, ...] = (0.0, 0.0), **info: str) -> Facts:
    return Facts(label, {**INFO, **info}, CONFIG, offsets)


def configured(**config: str | None) -> Facts:
    said = {name.replace("_", "-"): value for name, value in config.items()}
    return Facts("Redis at a:1", INFO, {**CONFIG, **said}, (0.0, 0.0))


def severities(found: list[Finding]) -> dict[str, str]:
    return {finding.id: finding.severity for finding in found}


def severity(found: list[Finding], id: str) -> str:
    return severities(found)[id]


def test_a_server_that_keeps_everything_is_good() -> None:
    found = severities(findings_of(facts(), None, fails_over=False))
    assert found.pop("redis-replicas") == "note"  # it stands alone
    assert set(found.values()) == {"good"}
    assert [*found, "redis-replicas"].sort() == list(checks.ALL).sort()


@pytest.mark.parametrize(
    ("info", "id", "expected"),
    [
        ({"maxmemory": "1000", "maxmemory_policy": "allkeys-lru"}, "redis-eviction", "danger"),
        ({"maxmemory": "1000", "maxmemory_policy": "volatile-ttl"}, "redis-eviction", "danger"),
        ({"maxmemory_policy": "allkeys-lru"}, "redis-eviction", "note"),
        ({"maxmemory_policy": ""}, "redis-eviction", "unknown"),
        ({"maxmemory": "1000", "used_memory": "860"}, "redis-memory-full", "warning"),
        ({"maxmemory": "1000", "used_memory": "980"}, "redis-memory-full", "danger"),
        ({"maxmemory": "1000", "used_memory": "500"}, "redis-memory-full", "good"),
        ({"aof_enabled": "0"}, "redis-persistence", "danger"),
        ({"aof_last_write_status": "err"}, "redis-persistence", "danger"),
        ({"connected_slaves": "2"}, "redis-replicas", "warning"),
        ({"role": "slave"}, "redis-replicas", "danger"),
    ],
)
def test_what_info_tells(info: dict[str, str], id: str, expected: str) -> None:
    said = Facts("Redis at a:1", {**INFO, **info}, CONFIG, (0.0, 0.0))
    assert severity(findings_of(said, None, fails_over=False), id) == expected


@pytest.mark.parametrize(
    ("config", "id", "expected"),
    [
        ({"appendfsync": "everysec"}, "redis-persistence", "note"),
        ({"appendfsync": None}, "redis-persistence", "unknown"),
        ({"client_output_buffer_limit": "pubsub 65536 65536 1"}, "redis-pubsub-buffer", "warning"),
        ({"client_output_buffer_limit": "pubsub 0 0 0"}, "redis-pubsub-buffer", "good"),
        ({"client_output_buffer_limit": None}, "redis-pubsub-buffer", "unknown"),
    ],
)
def test_what_the_configuration_tells(config: dict[str, str | None], id: str, expected: str) -> None:
    assert severity(findings_of(configured(**config), None, fails_over=False), id) == expected


@pytest.mark.parametrize(("attached", "expected"), [("2", "good"), ("0", "danger")])
def test_replicas_that_must_confirm_are_counted(attached: str, expected: str) -> None:
    found = findings_of(facts(connected_slaves=attached), 1, fails_over=True)
    assert severity(found, "redis-replicas") == expected


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [((0.0, 0.0), "good"), ((0.0, 2.0), "warning"), ((60.0, 60.0), "note"), ((), "unknown")],
)
def test_a_clock_that_moves_is_worse_than_one_that_is_wrong(
    offsets: tuple[float, ...], expected: str
) -> None:
    assert severity(findings_of(facts(offsets=offsets), None, fails_over=False), "redis-clock") == expected


def test_a_user_that_may_not_run_info_learns_nothing_wrong() -> None:
    silent = Facts("Redis at a:1", {}, dict.fromkeys(CONFIG), (0.0, 0.0))
    found = severities(findings_of(silent, None, fails_over=False))
    assert {found[id] for id in checks.OF_INFO} == {"unknown"}
    assert silent.survives_restart == silent.survives_power_failure == "unknown"


# -- sentinels -----------------------------------------------------------------------------------


def watched(
    label: str = "s1", *, host: str = "a", others: tuple[str, ...] = ("b", "c"), quorum: int = 2, port: int = 1,
    down_after: float = 5.0,
) -> SentinelFacts:  # fmt: skip
    return SentinelFacts(
        label, host, ("m", port), quorum, down_after, len(others) + 1, others, (("m", port),)
    )


def test_three_sentinels_on_three_hosts_are_good() -> None:
    assert [one.severity for one in sentinel.placement([watched()])] == ["good"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([watched(others=())], "there is 1 sentinel"),
        ([watched(others=("b",))], "there are 2 sentinels"),
        ([watched(others=("a", "a"))], "run on one host"),
        ([watched(quorum=1)], "the quorum is 1 of 3"),
        ([watched(), watched("s2", port=2)], "do not agree on the master"),
    ],
)
def test_sentinels_that_cannot_fail_over_safely_are_named(found: list[SentinelFacts], said: str) -> None:
    told = [one for one in sentinel.placement(found) if one.severity in ("warning", "danger")]
    assert any(said in one.text for one in told)


def test_a_failover_that_takes_longer_than_the_usual_ttl_is_told() -> None:
    assert [one.severity for one in sentinel.down_after([watched(down_after=60.0)])] == ["warning"]
    assert [one.severity for one in sentinel.down_after([watched()])] == ["good"]


def test_two_masters_are_a_danger_and_so_is_none() -> None:
    one, other = facts("Redis at a:1"), facts("Redis at b:1")
    replica = facts("Redis at c:1", role="slave")
    assert [found.severity for found in sentinel.two_masters([one, replica])] == ["good"]
    assert [found.severity for found in sentinel.two_masters([one, other])] == ["danger"]
    assert [found.severity for found in sentinel.two_masters([replica])] == ["danger"]
    behind = facts("Redis at d:1", role="slave", master_replid="another")
    assert [found.severity for found in sentinel.two_masters([one, behind])] == ["warning"]


# -- a Cluster -----------------------------------------------------------------------------------


def node(id: str, host: str, master: str = "-", slots: int = 0, *flags: str) -> Node:
    return Node(id, host, 1, ("slave" if master != "-" else "master", *flags), master, slots)


WHOLE = (node("m", "a", slots=16384), node("r", "b", "m"))


def test_a_cluster_with_all_slots_and_replicas_elsewhere_is_good() -> None:
    assert [one.severity for one in cluster.coverage(ClusterFacts("ok", WHOLE))] == ["good"]


@pytest.mark.parametrize(
    ("nodes", "state", "expected", "said"),
    [
        ((node("m", "a", slots=16000), node("r", "b", "m")), "ok", "danger", "384 of 16384 slots"),
        (
            (node("m", "a", slots=16384), node("r", "b", "m", 0, "fail")),
            "ok",
            "warning",
            "no replica that works",
        ),
        ((node("m", "a", slots=16384), node("r", "a", "m")), "ok", "warning", "run on one host"),
        (WHOLE, "fail", "danger", "its state is fail"),
    ],
)
def test_a_cluster_with_gaps_is_told(nodes: tuple[Node, ...], state: str, expected: str, said: str) -> None:
    found = list(cluster.coverage(ClusterFacts(state, nodes)))
    assert any(one.severity == expected and said in one.text for one in found)


def test_a_line_of_cluster_nodes_is_read() -> None:
    lines = b"07c3 127.0.0.1:30004@31004,host slave e7d1 0 1426238317239 4 connected\n"
    lines += b"67ed :30002@31002 myself,master - 0 0 2 connected 5461-10922 11000 [93-<-292f]\n"
    told = cluster._facts(b"cluster_state:ok\r\n", lines, ("10.0.0.1", 30002))
    assert [(one.host, one.port, one.slots, one.is_master) for one in told.nodes] == [
        ("127.0.0.1", 30004, 0, False),
        ("10.0.0.1", 30002, 5463, True),
    ]


# -- a quorum ------------------------------------------------------------------------------------


def test_a_quorum_of_independent_nodes_is_good() -> None:
    nodes = [facts(f"Redis at {host}:1", run_id=host) for host in "abc"]
    assert [one.severity for one in redlock.independence(nodes, 3)] == ["good"]


@pytest.mark.parametrize(
    ("nodes", "named", "expected", "said"),
    [
        ([("a", "1"), ("b", "1"), ("c", "3")], 3, "danger", "are one server"),
        ([("a", "1"), ("a", "2"), ("c", "3")], 3, "warning", "run on 2 hosts"),
        ([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")], 4, "note", "as many may fail as of 3, 1"),
    ],
)
def test_nodes_that_fail_together_are_told(
    nodes: list[tuple[str, str]], named: int, expected: str, said: str
) -> None:
    told = redlock.independence([facts(f"Redis at {host}:1", run_id=run) for host, run in nodes], named)
    assert any(one.severity == expected and said in one.text for one in told)


def test_a_node_whose_clock_moves_while_we_look_is_named() -> None:
    steady, jumping = facts("Redis at a:1"), facts("Redis at b:1", offsets=(0.0, 3.0))
    assert [one.severity for one in redlock.clocks([steady, facts("Redis at c:1")])] == ["good"]
    (told,) = redlock.clocks([steady, jumping])
    assert told.severity == "warning"
    assert "b:1" in told.text
