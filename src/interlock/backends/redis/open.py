"""From a URL, or a user's own client, to a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from interlock.backends.redis.address import Address, Route
from interlock.backends.redis.cluster import PORT as CLUSTER_PORT
from interlock.backends.redis.cluster import Cluster
from interlock.backends.redis.clustered import ClusterStore, ReplicatedClusterStore
from interlock.backends.redis.dialling import Dialling, OnLoop, OnThread
from interlock.backends.redis.following import Following
from interlock.backends.redis.keys import ClusterKeys, Keys
from interlock.backends.redis.leaf import Leaf, Pausing, Plainly
from interlock.backends.redis.listener import Listener
from interlock.backends.redis.pool import Pool
from interlock.backends.redis.reading import Attending
from interlock.backends.redis.replicated import (
    Lanes,
    Replicas,
    ReplicatedStore,
    Wanted,
    checked_replicas,
    enough,
)
from interlock.backends.redis.reserve import Reserve
from interlock.backends.redis.sentinel import PORT, Sentinels
from interlock.backends.redis.sharded import ShardedListener
from interlock.backends.redis.shards import Shards
from interlock.backends.redis.store import RedisStore
from interlock.errors import InvalidURL
from interlock.ports import CONNECT_TIMEOUT, Runtime

MakeLeaf = Callable[[Callable[[Route], Leaf], Pausing, Dialling, bool], Leaf]
"""Makes the leaf of one kind of deployment out of leaves to single servers; the last says whether it is the keeper's."""

MISSPELT = "the port must be a number up to 65535, and an address of IPv6 stands in brackets: [::1]:6379"


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store at `redis://`, `rediss://` or `unix://`; `?prefix=` is put before every key. Connects when used."""
    if parts.fragment:
        raise InvalidURL(f"{parts.scheme}:// takes no #fragment; write %23 for a # in a password")
    if parts.scheme != "unix":
        _check_database(parts, parts.path.strip("/"))
    try:
        _ = parts.port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://: {MISSPELT}") from None
    prefix, replicas, rest = _options(parts)
    if isinstance(replicas, str):
        raise InvalidURL(
            f"replicas={replicas}: one server does not know how many replicas it should have; say a number, or "
            "name its sentinels, redis+sentinel://, or its Cluster, redis+cluster://"
        )
    # Put together by hand: the standard library writes unix:/path, without the slashes.
    url = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
    address = Address.of_url(url, connect_timeout)
    return open_address(address, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def open_sentinel_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
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
    url = f"{scheme}://{credentials}{at}master/{database}?{urlencode(options)}"
    server = Address.of_url(url, connect_timeout)
    watcher = server.for_sentinels(entry["username"], entry["password"])
    sentinels = [watcher.at(*_host_and_port(parts, host, PORT)) for host in hosts.split(",")]
    route = Sentinels(sentinels, unquote(service), server)
    return open_sentinels(route, prefix, runtime, asynchronous=asynchronous, replicas=replicas)


def open_cluster_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store at `redis+cluster://host:port,host:port`, some of its nodes, or `rediss+cluster://` with TLS."""
    if parts.fragment or parts.path.strip("/") not in ("", "0"):
        raise InvalidURL(f"write {parts.scheme}://host:port,host:port; a Cluster has no databases but 0")
    prefix, replicas, rest = _options(parts)
    credentials, at, hosts = parts.netloc.rpartition("@")
    places = [_host_and_port(parts, host, CLUSTER_PORT) for host in hosts.split(",")]
    host, port = places[0]
    bracketed = f"[{host}]" if ":" in host else host
    scheme = parts.scheme.partition("+")[0]
    server = Address.of_url(f"{scheme}://{credentials}{at}{bracketed}:{port}/0?{rest}", connect_timeout)
    way = Cluster(server, places)
    return open_cluster(
        way, prefix, runtime, asynchronous=asynchronous, replicas=replicas, notices=_notices(parts)
    )


def _options(parts: SplitResult) -> tuple[str, Replicas | None, str]:
    """The prefix, the replicas wanted, and the options that are redis-py's."""
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = dict(options)
    replicas = checked_replicas(ours["replicas"]) if "replicas" in ours else None
    if "notices" in ours and not parts.scheme.endswith("+cluster"):
        raise InvalidURL(
            f"notices={ours['notices']}: only a Cluster, redis+cluster://, has this choice; leave it out"
        )
    known = ("prefix", "replicas", "notices")
    rest = urlencode([(name, value) for name, value in options if name not in known])
    return ours.get("prefix", ""), replicas, rest


def _notices(parts: SplitResult) -> str | None:
    """How grants are told; None where the nodes decide."""
    word = dict(parse_qsl(parts.query, keep_blank_values=True)).get("notices")
    if word not in (None, "plain", "sharded"):
        raise InvalidURL(f"notices={word}: say how grants are told: plain, to all nodes, or sharded")
    return word


def _check_database(parts: SplitResult, database: str) -> None:
    if database and not database.isdecimal():
        raise InvalidURL(f"{parts.scheme}://.../{database}: a database of Redis is a number, such as 0")


def _host_and_port(parts: SplitResult, text: str, port: int) -> tuple[str, int]:
    try:
        host = urlsplit(f"//{text}")
        return host.hostname or "localhost", host.port or port
    except ValueError:
        raise InvalidURL(f"{parts.scheme}://{text}: {MISSPELT}") from None


def open_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store behind a client of redis-py or valkey-py, of either colour, over connections of its own."""
    if hasattr(getattr(client, "connection_pool", None), "sentinel_manager"):
        route = Sentinels.of_client(client, connect_timeout)
        return open_sentinels(route, "", runtime, asynchronous=asynchronous)
    if hasattr(client, "nodes_manager"):
        way = Cluster.of_client(client, connect_timeout)
        return open_cluster(way, "", runtime, asynchronous=asynchronous)
    return open_address(Address.of_client(client, connect_timeout), "", runtime, asynchronous=asynchronous)


def open_address(
    address: Address, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: int | None = None
) -> RedisStore:
    """The store on one server; so many replicas must confirm each grant."""

    async def wanted(request: bytes, timeout: float) -> int:
        return replicas or 0

    def leaf(make: Callable[[Route], Leaf], pausing: Pausing, dial: Dialling, hurried: bool) -> Leaf:
        return make(address)

    parts = _Assembly(address, Keys(prefix), runtime, leaf, lambda leaf, dial: wanted if replicas else None)
    return parts.store(asynchronous=asynchronous)


def open_sentinels(
    route: Sentinels, prefix: str, runtime: Runtime, *, asynchronous: bool, replicas: Replicas | None = None
) -> RedisStore:
    """The store on whoever is master; so many replicas must confirm each grant."""

    def wanted(leaf: Leaf, dial: Dialling) -> Wanted | None:
        async def count(request: bytes, timeout: float) -> int:
            return enough(replicas or 0, await route.known(dial, timeout))

        return count if replicas else None

    def leaf(make: Callable[[Route], Leaf], pausing: Pausing, dial: Dialling, hurried: bool) -> Leaf:
        return Following(lambda: make(route), route, pausing, several=isinstance(dial, OnThread))

    store = _Assembly(route, Keys(prefix), runtime, leaf, wanted).store(asynchronous=asynchronous)
    route.on_change = store.taken_over
    return store


def open_cluster(
    way: Cluster,
    prefix: str,
    runtime: Runtime,
    *,
    asynchronous: bool,
    replicas: Replicas | None = None,
    notices: str | None = None,
) -> RedisStore:
    """The store on all nodes of a Cluster; so many replicas of its shard must confirm each grant."""

    def wanted(leaf: Leaf, dial: Dialling) -> Wanted | None:
        async def count(request: bytes, timeout: float) -> int:
            assert isinstance(leaf, Shards)
            # One at least: a shard that has no replica known, dead or alive, has just lost its only one.
            return max(1, enough(replicas or 0, await leaf.replicas(request, timeout)))

        return count if replicas else None

    def leaf(make: Callable[[Route], Leaf], pausing: Pausing, dial: Dialling, hurried: bool) -> Leaf:
        return Shards(way, make, pausing, dial, hurried=hurried)

    kinds, keys = (ClusterStore, ReplicatedClusterStore), ClusterKeys(prefix)
    listener = None if notices == "plain" else ShardedListener(way, keys, must=notices == "sharded")
    parts = _Assembly(way, keys, runtime, leaf, wanted, kinds, listener)
    store = parts.store(asynchronous=asynchronous)
    way.on_change = store.taken_over
    return store


class _Assembly:
    """Stores of either colour over one route, and their sides for the keeper; they share what hears of grants."""

    def __init__(
        self,
        route: Route,
        keys: Keys,
        runtime: Runtime,
        leaf: MakeLeaf,
        wanted: Callable[[Leaf, Dialling], Wanted | None],
        kinds: tuple[type[RedisStore], type[ReplicatedStore]] = (RedisStore, ReplicatedStore),
        sharded: ShardedListener | None = None,
    ) -> None:
        self._route, self._keys, self._runtime = route, keys, runtime
        self._leaf, self._wanted, self._kinds = leaf, wanted, kinds
        self._listener = sharded or Listener(route)
        self._reserve = Reserve()

    def store(self, *, asynchronous: bool) -> RedisStore:
        return self._on_loop() if asynchronous else self._on_threads(self._runtime)

    def _on_threads(self, waiting: Pausing) -> RedisStore:
        pool = self._leaf(lambda route: Pool(route, reserve=self._reserve), waiting, OnThread(), False)
        store = self._over(pool, pool, self._attending(waiting, lambda: None), None, OnThread())
        store._keeper = lambda: self._kept(self._hurried(waiting), blocks=True)
        return store

    def _hurried(self, waiting: Pausing) -> RedisStore:
        """A store in which connecting is a part of every call's time."""
        pool = self._leaf(lambda route: Pool(route, hurried=True), waiting, OnThread(), True)
        return self._over(pool, pool, self._attending(waiting, lambda: None), None, OnThread())

    def _on_loop(self) -> RedisStore:
        """An asyncio store has a blocking twin, for the keeper's thread and for the end of the process."""
        from asyncio import get_running_loop  # here, not above: most programs do without

        from interlock.backends.redis.link import Links

        def link() -> Leaf:
            return self._leaf(lambda route: Links(route, reserve=self._reserve), runtime, OnLoop(), False)

        def task_keeper() -> RedisStore:
            own = self._leaf(lambda route: Links(route, hurried=True), runtime, OnLoop(), True)
            return self._kept(self._over(own, own, pausing, None, OnLoop()), blocks=False)

        runtime = self._runtime
        pausing = self._attending(runtime, get_running_loop)
        twin = self._hurried(Plainly(runtime))
        twin._keeper = lambda: self._kept(twin, blocks=True)
        store = self._over(link(), Lanes(link), pausing, twin, OnLoop())
        store._keeper = task_keeper
        return store

    def _over(
        self, leaf: Leaf, lane: Leaf, pausing: Pausing, twin: RedisStore | None, dial: Dialling
    ) -> RedisStore:
        plain, replicated = self._kinds
        if (count := self._wanted(leaf, dial)) is None:
            return plain(self._route.place, self._keys, leaf, self._listener, pausing, twin)
        store = replicated(self._route.place, self._keys, leaf, self._listener, pausing, twin)
        store.replicate(count, lane)
        return store

    def _attending(self, pausing: Pausing, loop: Callable[[], Any]) -> Pausing:
        return Attending(pausing, lambda: self._listener.reading, loop)

    def _kept(self, side: RedisStore, *, blocks: bool) -> RedisStore:
        """From now on the keeper's own connection is made before the first request of the others."""
        self._reserve.keep(side._leaf, blocks=blocks)
        return side
