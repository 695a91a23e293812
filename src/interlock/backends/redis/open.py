"""From a URL, or a user's own client, to a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from interlock.backends.redis.address import Address, Route
from interlock.backends.redis.dialling import Dialling, OnLoop, OnThread
from interlock.backends.redis.following import Following
from interlock.backends.redis.keys import Keys
from interlock.backends.redis.leaf import Leaf, Pausing, Plainly
from interlock.backends.redis.listener import Listener
from interlock.backends.redis.pool import Pool
from interlock.backends.redis.replicated import (
    Lanes,
    Replicas,
    ReplicatedStore,
    Wanted,
    checked_replicas,
    enough,
)
from interlock.backends.redis.sentinel import PORT, Sentinels
from interlock.backends.redis.store import RedisStore
from interlock.errors import InvalidURL
from interlock.ports import Runtime


def open_url(parts: SplitResult, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    """The store at `redis://`, `rediss://` or `unix://`; `?prefix=` is put before every key. Connects when used."""
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    if parts.scheme != "unix":
        _check_database(parts, parts.path.strip("/"))
    try:
        _ = parts.port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: the port must be a number up to 65535") from None
    prefix, replicas, rest = _options(parts)
    if isinstance(replicas, str):
        raise InvalidURL(
            f"replicas={replicas}: one server does not know how many replicas it should have; say a number, or "
            "name its sentinels: redis+sentinel://"
        )
    # Put together by hand: the standard library writes unix:/path, without the slashes.
    address = Address.of_url(f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}")
    return open_address(address, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def open_sentinel_url(parts: SplitResult, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    """The store at `redis+sentinel://host:port,host:port/service/db`, or `rediss+sentinel://` with TLS."""
    service, _, database = parts.path.strip("/").partition("/")
    if parts.fragment or not service:
        raise InvalidURL(
            f"write {parts.scheme}://host:port,host:port/service/db; the service is what Sentinel calls it"
        )
    _check_database(parts, database)
    prefix, replicas, rest = _options(parts)
    options = dict(parse_qsl(rest))
    scheme = parts.scheme.partition("+")[0]
    entry = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    credentials, at, hosts = parts.netloc.rpartition("@")
    server = Address.of_url(f"{scheme}://{credentials}{at}master/{database}?{urlencode(options)}")
    watcher = server.for_sentinels(entry["username"], entry["password"])
    sentinels = [watcher.at(*_host_and_port(parts, host)) for host in hosts.split(",")]
    route = Sentinels(sentinels, unquote(service), server)
    return open_sentinels(route, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def _options(parts: SplitResult) -> tuple[str, Replicas | None, str]:
    """The prefix, the replicas wanted, and the options that are redis-py's."""
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = dict(options)
    replicas = checked_replicas(ours["replicas"]) if "replicas" in ours else None
    rest = urlencode([(name, value) for name, value in options if name not in ("prefix", "replicas")])
    return ours.get("prefix", ""), replicas, rest


def _check_database(parts: SplitResult, database: str) -> None:
    if database and not database.isdecimal():
        raise InvalidURL(f"{parts.scheme}://.../{database}: a database of Redis is a number, such as 0")


def _host_and_port(parts: SplitResult, text: str) -> tuple[str, int]:
    try:
        host = urlsplit(f"//{text}")
        return host.hostname or "localhost", host.port or PORT
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://{text}: the port must be a number up to 65535") from None


def open_client(client: Any, runtime: Runtime, *, asynchronous: bool) -> RedisStore:
    """The store behind a client of redis-py or valkey-py, of either colour, over connections of its own."""
    if hasattr(getattr(client, "connection_pool", None), "sentinel_manager"):
        return open_sentinels(Sentinels.of_client(client), "", runtime, asynchronous=asynchronous)
    return open_address(Address.of_client(client), "", runtime, asynchronous=asynchronous)


def open_address(
    address: Address, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: int | None = None
) -> RedisStore:
    """The store on one server; so many replicas must confirm each grant."""

    async def wanted(timeout: float) -> int:
        return replicas or 0

    def leaf(make: Callable[[], Leaf], pausing: Pausing, several: bool) -> Leaf:
        return make()

    return _assembled(address, prefix, runtime, asynchronous, leaf, lambda dial: wanted if replicas else None)


def open_sentinels(
    route: Sentinels, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: Replicas | None = None
) -> RedisStore:
    """The store on whoever is master; so many replicas must confirm each grant."""

    def wanted(dial: Dialling) -> Wanted | None:
        async def count(timeout: float) -> int:
            return enough(replicas or 0, await route.known(dial, timeout))

        return count if replicas else None

    def leaf(make: Callable[[], Leaf], pausing: Pausing, several: bool) -> Leaf:
        return Following(make, route, pausing, several=several)

    store = _assembled(route, prefix, runtime, asynchronous, leaf, wanted)
    route.on_change = store.taken_over
    return store


def _assembled(
    route: Route,
    prefix: str,
    runtime: Runtime,
    asynchronous: bool,
    leaf: Callable[[Callable[[], Leaf], Pausing, bool], Leaf],
    wanted: Callable[[Dialling], Wanted | None],
) -> RedisStore:
    """A store of either colour over one route; an asyncio store has a blocking twin, for the keeper."""
    keys, listener = Keys(prefix), Listener(route)

    def store(
        leaf: Leaf, lane: Leaf, pausing: Pausing, twin: RedisStore | None, dial: Dialling
    ) -> RedisStore:
        if (count := wanted(dial)) is None:
            return RedisStore(route.place, keys, leaf, listener, pausing, twin)
        replicated = ReplicatedStore(route.place, keys, leaf, listener, pausing, twin)
        replicated.replicate(count, lane)
        return replicated

    waiting: Pausing = Plainly(runtime) if asynchronous else runtime
    pool = leaf(lambda: Pool(route), waiting, True)
    blocking = store(pool, pool, waiting, None, OnThread())
    if not asynchronous:
        return blocking
    from interlock.backends.redis.link import Links  # here, not above: it needs asyncio

    def link() -> Leaf:
        return leaf(lambda: Links(route), runtime, False)

    return store(link(), Lanes(link), runtime, blocking, OnLoop())
