"""From a URL, or a user's own KazooClient, to a store."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult

from interlock._core.runtime import Runtime
from interlock.backends.kit.runtime import ThreadRuntime
from interlock.backends.zookeeper.address import Address, of_client, of_url
from interlock.backends.zookeeper.session_client import SessionClient
from interlock.backends.zookeeper.store import ZooKeeperStore
from interlock.store import CONNECT_TIMEOUT


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> ZooKeeperStore:
    """The store at `zookeeper://h1,h2,h3/chroot`. Connects when it is used."""
    return open_address(of_url(parts, connect_timeout), runtime, asynchronous=asynchronous)


def open_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> ZooKeeperStore:
    """The store on the ensemble of a KazooClient: with its addresses, credentials and TLS, but in a
    session of its own.
    """
    return open_address(of_client(client, connect_timeout), runtime, asynchronous=asynchronous)


def open_address(address: Address, runtime: Runtime, *, asynchronous: bool) -> ZooKeeperStore:
    session_client = SessionClient(address)
    if not asynchronous:
        return ZooKeeperStore(session_client, runtime)
    return ZooKeeperStore(
        session_client, runtime, blocking_side=ZooKeeperStore(session_client, ThreadRuntime(runtime.now))
    )
