"""A quota that is used up: what needs a new node is refused with its name, and what stands is kept and given back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

import interlock
from interlock.errors import StoreUnavailable
from interlock.testing.lag import stretched
from interlock.testing.servers.zookeeper import Ensemble, running
from tests.patience import until
from tests.zookeeper.quotas import descendants, set_quota

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def limited() -> Iterator[Ensemble]:
    """A server that enforces quotas."""
    with running(1, jvm=["-Dzookeeper.enforceQuota=true"]) as ensemble:
        yield ensemble


@pytest.fixture
def admin(limited: Ensemble) -> Iterator[Any]:
    client: Any = KazooClient(hosts=limited.hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def full(admin: Any, chroot: str, more: int = 0) -> None:
    """Permit only so many nodes more than there are."""
    path = f"/{chroot}"
    admin.ensure_path(path)
    set_quota(admin, path, 1 + descendants(admin, path) + more)


def test_a_folder_that_a_quota_forbids_is_named_as_the_reason(limited: Ensemble, admin: Any) -> None:
    chroot = uuid4().hex
    with interlock.connect(limited.url(chroot, session=10.0)) as client:
        client.lock("first").acquire()
        full(admin, chroot)
        for call in (
            lambda: client.lock("second").acquire(timeout=5.0),
            lambda: client.lock("second").acquire(blocking=False),
            lambda: client.event("e").set(),
            lambda: client.register("r").update(lambda value: 1),
        ):
            with pytest.raises(StoreUnavailable, match="quota"):
                call()


def test_a_session_whose_own_node_a_quota_forbids_is_kept(limited: Ensemble, admin: Any) -> None:
    """Its claims were granted, so they are renewed: the refusal is an entry in the log of the servers, too."""
    chroot, session = uuid4().hex, stretched(2.0)
    for folder in ("held", ".sessions"):
        admin.ensure_path(f"/{chroot}/interlock/{folder}")
    full(admin, chroot, more=2)
    with interlock.connect(limited.url(chroot, session=session)) as client:
        lease = client.lock("held").acquire()
        assert lease
        granted = lease.deadline
        until(lambda: lease.deadline > granted + 2 * session or lease.lost.is_set())
        lease.check()
        lease.release()


def test_a_min_hold_that_a_quota_forbids_ends_all_the_same(limited: Ensemble, admin: Any) -> None:
    """The node that would outlive the program cannot be made. The claim stands on, and the keeper releases it."""
    chroot = uuid4().hex
    url = limited.url(chroot, session=20.0)
    with interlock.connect(url) as client, interlock.connect(url) as judge:
        judge.lock("other").acquire()
        lock = client.lock("job", min_hold=1.0)
        lock.acquire()
        full(admin, chroot)
        try:
            lock.release()
        except StoreUnavailable:
            pass
        until(lambda: not judge.lock("job").locked())
