"""A diagnosis of real servers: what is wrong is seen, what is sound is not blamed, and nothing is changed."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
import redis

import interlock
from interlock.doctor import Diagnosis
from interlock.testing.lag import at_most
from interlock.testing.servers import etcd, mysql, postgresql, redlock, sentinel, zookeeper
from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import running

pytestmark = pytest.mark.server

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def diagnosed(url: str, *, probe: bool = True) -> Diagnosis:
    with interlock.connect(url, log=False) as client:
        return client.diagnose(probe=probe)


def severities(diagnosis: Diagnosis) -> dict[str, str]:
    """The worst severity of each id."""
    return {finding.id: finding.severity for finding in reversed(diagnosis.findings)}


class TestRedis:
    def test_a_cache_is_no_place_for_locks(self) -> None:
        with running("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as server:
            found = diagnosed(f"redis://127.0.0.1:{server.port}")
        assert severities(found)["redis-eviction"] == "danger"
        assert severities(found)["redis-persistence"] == "danger"
        assert "the server process dies" in found.headline

    def test_a_durable_server_is_sound(self) -> None:
        with running(*DURABLE) as server:
            found = diagnosed(f"redis://127.0.0.1:{server.port}")
        assert found.worst == "note"  # it stands alone
        assert {one.failure for one in found.outlooks if one.one_holder == "no"} == {
            "the server's clock jumps forward",
            "an operator flushes the server",
        }

    def test_a_user_that_may_only_lock_learns_what_it_may(self) -> None:
        rights = ("on", ">secret", "~*", "&*", "+@all", "-info", "-config")
        with running() as server, redis.Redis(port=server.port) as admin:
            admin.execute_command("ACL", "SETUSER", "app", *rights)
            found = diagnosed(f"redis://app:secret@127.0.0.1:{server.port}", probe=False)
        assert severities(found)["redis-persistence"] == "unknown"
        assert "secret" not in str(found.as_dict())

    def test_sentinels_on_one_host_are_told_and_replicas_that_confirm_are_trusted(self) -> None:
        deployment = sentinel.steady()
        plain = diagnosed(deployment.url(f"{uuid4().hex}:"))
        confirmed = diagnosed(deployment.url(f"{uuid4().hex}:", replicas="majority"))
        assert severities(plain)["sentinel-placement"] == "warning"
        assert severities(plain)["sentinel-two-masters"] == "good"
        assert severities(plain)["redis-replicas"] == "warning"
        assert severities(confirmed)["redis-replicas"] == "good"
        assert "a replica takes over" in plain.headline
        assert "a replica takes over" not in confirmed.headline

    def test_a_quorum_on_one_host_is_told(self) -> None:
        found = diagnosed(redlock.steady(5).url(f"{uuid4().hex}:"))
        assert severities(found)["redlock-independence"] == "warning"
        assert severities(found)["redlock-memory"] == "good"


class TestOthers:
    def test_etcd_of_debian_has_a_bug_that_matters(self) -> None:
        found = diagnosed(etcd.steady().url(f"{uuid4().hex}/"))
        version = next(one for one in found.findings if one.id == "etcd-version")
        assert (version.severity == "danger") == ("15247" in version.text)
        assert severities(found)["etcd-members"] == "good"
        assert severities(found)["etcd-space"] == "good"

    def test_an_ensemble_is_asked_server_by_server(self) -> None:
        found = diagnosed(zookeeper.steady().fresh())
        assert severities(found)["zk-ensemble"] == "good"
        assert severities(found)["zk-session"] in ("good", "note")

    def test_a_database_that_never_saw_a_lock_is_not_changed(self) -> None:
        schema = postgresql.fresh_schema()
        server = postgresql.steady()
        found = diagnosed(server.url(schema), probe=False)
        assert severities(found)["pg-durability"] == "danger"  # servers of tests do without the disk
        tables = server.sql(
            "select table_name from information_schema.tables where table_schema = %s", schema
        )
        assert list(tables) == []

    def test_mariadb_tells_what_a_crash_would_cost(self) -> None:
        found = diagnosed(mysql.steady().url())
        assert severities(found)["mysql-durability"] in ("danger", "good", "note")
        assert severities(found)["mysql-role"] == "good"


SCHEMES = (
    "redis://{at}",
    "redis+sentinel://{at}/service",
    "redis+cluster://{at}",
    "redlock://{at},127.0.0.1:1,127.0.0.1:2",
    "etcd://{at}",
    "zookeeper://{at}",
    "postgresql://{at}/db",
    "mysql://{at}/db",
)


@pytest.mark.parametrize("scheme", SCHEMES)
class TestServersThatAreNotThere:
    def test_a_dead_server_is_one_sentence(self, scheme: str) -> None:
        url = scheme.format(at=f"127.0.0.1:{free_port()}")
        with interlock.connect(url, log=False) as client:
            found = client.diagnose(5.0)
            assert found.unreachable
            assert "\n" not in found.unreachable
            health = client.health()
            assert not health
            assert health.why

    def test_a_server_that_hangs_holds_nobody_up(self, scheme: str) -> None:
        with running() as server:
            url = scheme.format(at=f"127.0.0.1:{server.port}")
            server.freeze()
            try:
                with interlock.connect(url, log=False) as client, at_most(4.0):
                    assert client.diagnose(3.0).unreachable
            finally:
                server.thaw()

    def test_a_server_of_another_product_is_one_sentence(self, scheme: str) -> None:
        async def look(url: str) -> Diagnosis:
            async with interlock.aio.connect(url, log=False) as client:
                return await client.diagnose(4.0)

        other = etcd.steady().members[0].port if "redis" in scheme or "redlock" in scheme else None
        with running() as server:
            found = asyncio.run(look(scheme.format(at=f"127.0.0.1:{other or server.port}")))
        assert found.unreachable
        assert "\n" not in found.unreachable
