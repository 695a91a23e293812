"""Stores on a test ensemble, and how to end the session of one as a crash of its client does."""

from __future__ import annotations

from typing import Any

from interlock.backends.zookeeper import ZooKeeperStore
from interlock.backends.zookeeper.link import Link
from interlock.store import Store
from interlock.testing.servers.zookeeper import until


def link_of(store: Any) -> Link:
    """The session behind a store, or behind a client of either face."""
    found = store if isinstance(store, ZooKeeperStore) else store._core.store
    assert isinstance(found, ZooKeeperStore)
    return found._link


def expire(link: Link) -> None:
    """Have the servers end a session: another client takes it over and closes it. Returns when its client knows."""
    from kazoo.client import KazooClient

    mine, session = link._client, link.session
    if mine is None or session is None:
        return
    other = KazooClient(
        hosts=link.address.hosts_text,
        client_id=(mine._session_id, mine._session_passwd),
        timeout=session.timeout,
    )
    other.start()
    other.stop()
    other.close()
    until(lambda: link.session is not session)


def abandon(store: Store) -> None:
    expire(link_of(store))
