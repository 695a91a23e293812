"""The stores with servers on which the shared suites run: how a place of one's own is made there, and which server a test may break.

No server starts before a test asks for it. What is peculiar to one store has tests of its own, in the folder of that store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from interlock.backends.sql.postgresql.dialect import PostgresDialect
from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, Suite
from interlock.testing.servers import etcd, mysql, postgresql, redis, redlock, zookeeper
from tests.attacks.servers.between import Between
from tests.attacks.servers.hanging import Hanging, Stalling
from tests.attacks.servers.inside import Inside
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site
from tests.etcd.stores import KIND as ETCD
from tests.field.kinds import Kind
from tests.full import FULL
from tests.mysql.stores import KIND as MYSQL
from tests.patience import give_requests_time, give_servers_time
from tests.postgresql.stores import KIND as POSTGRESQL
from tests.redis.stores import KIND as REDIS
from tests.zookeeper.stores import KIND as ZOOKEEPER

ALL: list[type[Suite]] = [*STORE_SUITES, *CLIENT_SUITES]


def _nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change nothing before a test."""


@dataclass(frozen=True)
class Deployment:
    """One kind of store on its servers."""

    name: str  # also that of its marker: `pytest -m etcd`
    stores: Kind
    site: Callable[[], AbstractContextManager[Site]] | None = None
    """A server that a test may break."""
    attacks: tuple[type[Any], ...] = ()
    conformance: tuple[type[Suite], ...] = tuple(ALL)
    few_async: bool = (
        True  # the second face runs only what depends on how the servers are reached: see `tests.full`
    )
    field: bool = True
    soaked: tuple[str, ...] = ()  # the faces of the field tests that run in full runs alone
    impossible: tuple[str, ...] = ()  # field tests about what cannot happen here
    prepare: Callable[[pytest.MonkeyPatch], None] = give_servers_time
    prepare_conformance: Callable[[pytest.MonkeyPatch], None] = _nothing


@contextmanager
def _redis_site() -> Iterator[Site]:
    with redis.running() as server:
        yield Site(server.port, lambda session: server.url(f"{uuid4().hex}:"), lambda: [server.pid])


@contextmanager
def _etcd_site() -> Iterator[Site]:
    with etcd.running(1) as cluster:
        member = cluster.members[0]
        yield Site(member.port, lambda session: cluster.url(f"{uuid4().hex}/"), lambda: [member.pid])


@contextmanager
def _zookeeper_site() -> Iterator[Site]:
    with zookeeper.running(1) as ensemble:
        node = ensemble.nodes[0]
        yield Site(node.port, lambda session: ensemble.fresh(session=session), lambda: [node.pid])


@contextmanager
def _postgresql_site() -> Iterator[Site]:
    with postgresql.running() as server:
        yield Site(
            server.port, lambda session: server.url(postgresql.fresh_schema()), lambda: server.processes()
        )


@contextmanager
def _mysql_site() -> Iterator[Site]:
    with mysql.running(*mysql.HASTY) as server:
        yield Site(server.port, lambda session: server.fresh_url(), lambda: [server.pid])


def _as_in_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client listens for itself: what one does to another's claim passes through the server."""
    monkeypatch.setattr(PostgresDialect, "listener_key", None)


_ON_REDLOCK = {"LockAsMutex", "RWLocks", "RLocks", "MultiLocks", "Elections", "Conditions", "Leases"}

DEPLOYMENTS = [
    Deployment("redis", REDIS, _redis_site, (Repeated,), few_async=False, prepare=_nothing,
               prepare_conformance=give_servers_time),
    Deployment("redlock", Kind(lambda: redlock.steady().url(f"{uuid4().hex}:")), few_async=False, field=False,
               conformance=tuple(one for one in ALL if FULL or one in STORE_SUITES or one.__name__ in _ON_REDLOCK)),
    Deployment("etcd", ETCD, _etcd_site, (Inside, Between, Stalling, Repeated, Restarted), soaked=("async",)),
    # On ZooKeeper a claim lapses with its session alone; `tests/zookeeper/test_sessions.py` has what that means for a renewal.
    Deployment("zookeeper", ZOOKEEPER, _zookeeper_site, (Inside, Between, Repeated, Hanging, Stalling, Restarted),
               soaked=("sync", "async"), prepare_conformance=give_requests_time,
               impossible=("test_04_a_renewal_after_another_took_and_released_it_re_creates_nothing",)),
    Deployment("postgresql", POSTGRESQL, _postgresql_site, (Inside, Between, Repeated, Hanging, Restarted),
               soaked=("async",), prepare_conformance=_as_in_many_processes),
    Deployment("mysql", MYSQL, _mysql_site, (Inside, Between, Repeated, Hanging, Restarted), soaked=("async",)),
]  # fmt: skip


def deployment_of(request: pytest.FixtureRequest) -> Deployment:
    """The deployment on which the present test runs."""
    case: Any = request.cls
    found: Deployment = case.deployment
    return found


def on(
    deployment: Deployment, made: dict[str, type[Any]], *marks: pytest.MarkDecorator
) -> dict[str, type[Any]]:
    """Test classes by names that end in that of their deployment, with its marker."""
    found: dict[str, type[Any]] = {}
    for name, one in made.items():
        called = name + deployment.name.capitalize()
        own = [getattr(pytest.mark, deployment.name), pytest.mark.server, *marks]
        found[called] = type(
            called, (one,), {"deployment": deployment, "pytestmark": own, "__doc__": one.__doc__}
        )
    return found


def faces(made: dict[str, type[Any]], *names: str) -> dict[str, type[Any]]:
    """Those of the suites that run under one of these faces."""
    return {name: one for name, one in made.items() if one.face.name in names}
