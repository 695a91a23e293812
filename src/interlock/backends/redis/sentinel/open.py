"""From a URL, or a user's own client, to a store on the master that sentinels name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode

from interlock._core.runtime import Runtime
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Address, Route
from interlock.backends.redis.assembly import Assembly
from interlock.backends.redis.replicated import Replicas, ReplicasWanted, enough
from interlock.backends.redis.sentinel.checks import examine_sentinels
from interlock.backends.redis.sentinel.discovery import PORT, Sentinels
from interlock.backends.redis.sentinel.failover import FailoverTransport
from interlock.backends.redis.sentinel.store import ReplicatedSentinelStore, SentinelStore
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.handshake import BlockingHandshake, Handshake
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.url_options import check_database, host_and_port, options
from interlock.backends.redis.wire.keys import Keys
from interlock.errors import InvalidURL
from interlock.store import CONNECT_TIMEOUT

AnySentinelStore = TypeVar("AnySentinelStore", bound=SentinelStore)


def open_sentinel_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store at `redis+sentinel://host:port,host:port/service/db`, or `rediss+sentinel://` with TLS."""
    service, _, database = parts.path.strip("/").partition("/")
    if parts.fragment or not service:
        raise InvalidURL(
            f"write {parts.scheme}://host:port,host:port/service/db; the service is what Sentinel calls it"
        )
    check_database(parts, database)
    prefix, replicas, rest = options(parts)
    settings = dict(parse_qsl(rest))
    scheme = parts.scheme.partition("+")[0]
    entry = {name: settings.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    credentials, at, hosts = parts.netloc.rpartition("@")
    url = f"{scheme}://{credentials}{at}master/{database}?{urlencode(settings)}"
    server = Address.of_url(url, connect_timeout)
    watcher = server.for_sentinels(entry["username"], entry["password"])
    sentinels = [watcher.at(*host_and_port(parts, host, PORT)) for host in hosts.split(",")]
    route = Sentinels(sentinels, unquote(service), server)
    return open_sentinels(route, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def open_sentinels(
    route: Sentinels, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: Replicas | None = None
) -> RedisStore:
    """The store on the present master; `replicas` of its replicas must confirm each grant and renewal."""

    def wanted(transport: Transport, handshake: Handshake) -> ReplicasWanted | None:
        async def count(request: bytes, timeout: float, known: bool) -> int:
            return enough(replicas or 0, await route.replica_count(handshake, timeout, known))

        return count if replicas else None

    def transport(
        make: Callable[[Route], Transport], runtime: WaitRuntime, handshake: Handshake, for_keeper: bool
    ) -> Transport:
        return FailoverTransport(
            lambda: make(route), route, runtime, several=isinstance(handshake, BlockingHandshake)
        )

    def behind_them(kind: type[AnySentinelStore]) -> Callable[..., AnySentinelStore]:
        def made(*parts: Any) -> AnySentinelStore:
            store = kind(*parts)
            store._route = route
            return store

        return made

    kinds = behind_them(SentinelStore), behind_them(ReplicatedSentinelStore)
    checks = partial(examine_sentinels, route)
    parts = Assembly(route, Keys(prefix), runtime, transport, wanted, checks, kinds)
    store = parts.store(asynchronous=asynchronous)
    route.on_change = store.master_changed
    return store


def open_sentinel_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float
) -> RedisStore:
    """The store behind a client that `Sentinel.master_for` made."""
    route = Sentinels.of_client(client, connect_timeout)
    return open_sentinels(route, "", runtime, asynchronous=asynchronous)
