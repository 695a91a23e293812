"""Stores on a test ensemble, and how to end the session of one as a crash of its client does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from interlock.backends.zookeeper import ZooKeeperStore
from interlock.backends.zookeeper.session_client import SessionClient
from interlock.store import Store
from interlock.testing.servers.zookeeper import steady, until
from tests.field.kinds import Kind


def session_client_of(store: Any) -> SessionClient:
    """The session behind a store, or behind a client of either face."""
    found = store if isinstance(store, ZooKeeperStore) else store._core.store
    assert isinstance(found, ZooKeeperStore)
    return found._session_client


def expire(session_client: SessionClient) -> None:
    """Have the servers end a session: another client takes it over and closes it. Returns when its client knows."""
    from kazoo.client import KazooClient

    mine, session = session_client._client, session_client.session
    if mine is None or session is None:
        return
    other = KazooClient(
        hosts=session_client.address.hosts_text,
        client_id=(mine._session_id, mine._session_passwd),
        timeout=session.timeout,
    )
    other.start()
    other.stop()
    other.close()
    until(lambda: session_client.session is not session)


def abandon(store: Store) -> None:
    expire(session_client_of(store))


@contextmanager
def nodes(place: str) -> Iterator[tuple[Any, str]]:
    """A client of kazoo, and the path below which everything of a place is."""
    client = KazooClient(hosts=steady().hosts)
    client.start()
    try:
        yield client, f"{urlsplit(place).path}/interlock"
    finally:
        client.stop()
        client.close()


def wipe(place: str) -> None:
    with nodes(place) as (client, root), suppress(NoNodeError):
        client.delete(root, recursive=True)


def keys(place: str) -> int:
    """Those that would not vanish by themselves: the servers remove the folder of a name once it is empty."""
    with nodes(place) as (client, root):
        folders = client.get_children(root)
        return sum(len(client.get_children(f"{root}/{name}")) for name in folders)


KIND = Kind(lambda: steady().fresh(), abandon=abandon, wipe=wipe, keys=keys)
