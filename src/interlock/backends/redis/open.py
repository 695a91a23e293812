"""From a URL, or a user's own client, to a store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import SplitResult

from interlock._core.runtime import Runtime
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Address, Route
from interlock.backends.redis.assembly import Assembly
from interlock.backends.redis.checks import examine_server
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.handshake import Handshake
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.url_options import MISSPELT, check_database, options
from interlock.backends.redis.wire.keys import Keys
from interlock.errors import InvalidURL
from interlock.store import CONNECT_TIMEOUT


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store at `redis://`, `rediss://` or `unix://`; `?prefix=` is put before every key.

    Connects when used.
    """
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    if parts.scheme != "unix":
        check_database(parts, parts.path.strip("/"))
    try:
        _ = parts.port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: {MISSPELT}") from None
    prefix, replicas, rest = options(parts)
    if isinstance(replicas, str):
        raise InvalidURL(
            f"replicas={replicas}: one server does not know how many replicas it should have; say a number, "
            "or name its sentinels, redis+sentinel://, or its Cluster, redis+cluster://"
        )
    # Put together by hand: the standard library writes unix:/path, without the slashes.
    url = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
    address = Address.of_url(url, connect_timeout)
    return open_address(address, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def open_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store on the server of a redis-py or valkey-py client, sync or async, over connections of its
    own.
    """
    if hasattr(getattr(client, "connection_pool", None), "sentinel_manager"):
        from interlock.backends.redis.sentinel.open import (
            open_sentinel_client,  # here: most clients need neither
        )

        return open_sentinel_client(
            client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout
        )
    if hasattr(client, "nodes_manager"):
        from interlock.backends.redis.cluster.open import open_cluster_client

        return open_cluster_client(
            client, runtime, asynchronous=asynchronous, connect_timeout=connect_timeout
        )
    return open_address(Address.of_client(client, connect_timeout), "", runtime, asynchronous=asynchronous)


def open_address(
    address: Address, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: int | None = None
) -> RedisStore:
    """The store on one server; `replicas` of its replicas must confirm each grant and renewal."""

    async def wanted(request: bytes, timeout: float, known: bool) -> int:
        return replicas or 0

    def transport(
        make: Callable[[Route], Transport], runtime: WaitRuntime, handshake: Handshake, for_keeper: bool
    ) -> Transport:
        return make(address)

    parts = Assembly(
        address,
        Keys(prefix),
        runtime,
        transport,
        lambda transport, handshake: wanted if replicas else None,
        partial(examine_server, address, replicas),
    )
    return parts.store(asynchronous=asynchronous)
