"""Opens a store on a quorum of independent servers: from one URL, from several, or from the user's own
clients.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from random import random
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from interlock._core.runtime import Runtime
from interlock.backends.kit.runtime import StoreRuntime, ThreadRuntime
from interlock.backends.redis.address import Address
from interlock.backends.redis.transport.handshake import AsyncHandshake, BlockingHandshake, Handshake
from interlock.backends.redis.url_options import MISSPELT
from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.checks import examine_nodes
from interlock.backends.redlock.quorum import Quorum
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
from interlock.backends.redlock.transport.interface import QuorumTransport
from interlock.backends.redlock.wire.packing import Packing
from interlock.errors import InvalidURL, Unsupported
from interlock.store import CONNECT_TIMEOUT

NODE_TIMEOUT_S = 0.05  # seconds a node may take before requests no longer wait for it


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedlockStore:
    """The store at `redlock://host:port,host:port,host:port/db`, or `redlocks://` with TLS.

    Connects when used.
    """
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise InvalidURL(f"{parts.scheme}://: a database of Redis is a number, such as 0")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix, node_timeout = options.pop("prefix", ""), _node_timeout(options.pop("node_timeout", None))
    credentials, at, hosts = parts.netloc.rpartition("@")
    scheme = "rediss" if parts.scheme == "redlocks" else "redis"
    rest = f"?{urlencode(options)}" if options else ""
    addresses = [
        Address.of_url(
            f"{scheme}://{credentials}{at}{_checked(parts, host)}/{database}{rest}", connect_timeout
        )
        for host in hosts.split(",")
    ]
    return open_addresses(addresses, runtime, prefix, node_timeout, asynchronous=asynchronous)


def open_nodes(
    nodes: Sequence[object],
    runtime: Runtime,
    *,
    asynchronous: bool,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> RedlockStore:
    """The store on several servers, each named by a URL (redis://, rediss://, unix://) or by a user's
    client.
    """
    addresses: list[Address] = []
    prefixes: set[str] = set()
    for node in nodes:
        if not isinstance(node, str):
            addresses.append(_of_client(node, connect_timeout))
            prefixes.add("")
            continue
        try:
            parts = urlsplit(node)
        except ValueError:
            raise InvalidURL(f"a URL of a node: {MISSPELT}") from None
        options = parse_qsl(parts.query, keep_blank_values=True)
        prefixes.add(dict(options).get("prefix", ""))
        rest = urlencode([(name, value) for name, value in options if name != "prefix"])
        # Put together by hand: urlunsplit writes unix:/path, without the two slashes.
        url = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
        addresses.append(Address.of_url(url, connect_timeout))
    if len(prefixes) > 1:
        raise InvalidURL("all nodes of a quorum must have one prefix; these have several")
    return open_addresses(addresses, runtime, prefixes.pop() if prefixes else "", asynchronous=asynchronous)


def _of_client(client: Any, connect_timeout: float) -> Address:
    if hasattr(getattr(client, "connection_pool", None), "sentinel_manager"):
        raise Unsupported(
            "a node of a quorum is always the same server, but a client made by Sentinel moves to another "
            "after a failover; give connect a client of each server, or this one alone"
        )
    return Address.of_client(client, connect_timeout)


def _node_timeout(text: str | None) -> float:
    try:
        seconds = NODE_TIMEOUT_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 1.0:
        raise InvalidURL(
            f"node_timeout={text}: say how many seconds one node may take, such as 0.05; at most 1"
        )
    return seconds


def _checked(parts: SplitResult, host: str) -> str:
    try:
        named = urlsplit(f"//{host}")
        _ = named.port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: {MISSPELT}") from None
    if not named.hostname:
        raise InvalidURL(
            f"{parts.scheme}:// names its nodes: {parts.scheme}://host1:6379,host2:6379,host3:6379"
        )
    return host


def open_addresses(
    addresses: Sequence[Address],
    runtime: Runtime,
    prefix: str = "",
    node_timeout: float = NODE_TIMEOUT_S,
    *,
    asynchronous: bool,
) -> RedlockStore:
    """The store on these servers.

    The keeper gets a store of its own over them, and an asyncio store has a blocking side.
    """
    labels = [address.label for address in addresses]
    _check_independent(labels)
    members, packing = Membership(labels), Packing(prefix)
    connect_timeout = max(address.connect_timeout for address in addresses)

    def quorum(transport: QuorumTransport) -> Quorum:
        return Quorum(transport, members, runtime.now, _wall, node_timeout, connect_timeout)

    def on_threads(threads: ThreadRuntime) -> RedlockStore:
        nodes = quorum(BlockingQuorumTransport(addresses, packing, runtime.now))
        return _over(nodes, addresses, BlockingHandshake(), threads)

    if not asynchronous:
        threads = ThreadRuntime(runtime.now, runtime.signal)
        store = on_threads(threads)
        store.give_keeper(lambda: on_threads(threads))
        return store
    # Here and not above: it needs asyncio, which blocking programs do not load.
    from interlock.backends.redlock.transport.aio import AsyncQuorumTransport

    def on_loop(blocking_side: RedlockStore | None) -> RedlockStore:
        nodes = quorum(AsyncQuorumTransport(addresses, packing, runtime.now))
        return _over(nodes, addresses, AsyncHandshake(), runtime, blocking_side)

    # For the keeper's thread, and for the end of the process.
    blocking_side = on_threads(ThreadRuntime(runtime.now))
    store = on_loop(blocking_side)
    store.give_keeper(lambda: on_loop(None))
    blocking_side.give_keeper(lambda: blocking_side, of=store)
    return store


def _over(
    quorum: Quorum,
    addresses: Sequence[Address],
    handshake: Handshake,
    runtime: StoreRuntime,
    blocking_side: RedlockStore | None = None,
) -> RedlockStore:
    """The store over these nodes, which it can examine."""
    store = RedlockStore(quorum, runtime, random, blocking_side)
    store.checks = partial(examine_nodes, addresses, handshake)
    return store


def _check_independent(labels: list[str]) -> None:
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise InvalidURL(f"{twice[0]} is named twice: each node of a quorum must be a server of its own")
    if len(labels) < 3:
        raise InvalidURL(
            f"a quorum needs at least 3 independent servers, not {len(labels)}; for one use redis://"
        )


def _wall() -> int:
    return time.time_ns() // 1000
