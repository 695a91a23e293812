"""A store takes its address from a URL or from a user's own client: TLS, users, databases, sockets, prefixes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio

import interlock
from interlock import aio, guards
from interlock.backends.redis import address
from interlock.errors import InvalidURL, StoreUnavailable, Unsupported
from interlock.testing.servers.redis import Server, running, started
from interlock.testing.servers.tls import SecureServer, certificate
from tests.patience import PATIENCE
from tests.redis.clients import enter, held_and_shown, held_and_shown_async

PASSWORD = "p@ss/w:rd#é"


@pytest.mark.parametrize("decoded", [False, True])
def test_a_blocking_client_of_redis_py_serves_both_faces(server: Server, decoded: bool) -> None:
    with redis.Redis(port=server.port, db=3, decode_responses=decoded) as theirs:
        held_and_shown(interlock.connect(theirs))
        asyncio.run(held_and_shown_async(aio.connect(theirs)))
        assert theirs.ping()


@pytest.mark.parametrize("decoded", [False, True])
def test_an_asyncio_client_of_redis_py_serves_both_faces(server: Server, decoded: bool) -> None:
    async def main() -> None:
        theirs = redis.asyncio.Redis(port=server.port, db=3, decode_responses=decoded)
        await held_and_shown_async(aio.connect(theirs))
        held_and_shown(interlock.connect(theirs))
        await theirs.aclose()

    asyncio.run(main())


def test_a_users_pool_is_left_alone(server: Server) -> None:
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=1)
    theirs = redis.Redis(connection_pool=pool)
    taken: Any = pool.get_connection()
    held_and_shown(interlock.connect(theirs))
    pool.release(taken)
    assert theirs.ping()
    pool.disconnect()


def test_a_users_database_is_used(server: Server) -> None:
    with redis.Redis(port=server.port, db=5) as theirs:
        client, name = interlock.connect(theirs), uuid4().hex
        with client.lock(name):
            assert theirs.exists(name)
        client.close()


LIBRARIES = ("redis", "redis.asyncio", "valkey", "valkey.asyncio")


def select_five(connection: Any) -> None:
    connection.on_connect()
    connection.send_command("SELECT", 5)
    connection.read_response()


def entering(library: str, way: str, port: int) -> Any:
    """A client that enters its database by more than its settings."""
    package = library.partition(".")[0]
    made = import_module(library)
    client: Any = getattr(made, package.capitalize())
    pools = import_module(f"{library}.connection")
    if way == "function":
        return client(port=port, **{f"{package}_connect_func": select_five})
    if way == "connection":
        own = type("Own", (pools.Connection,), {"on_connect": lambda self: None})
        return client(connection_pool=pools.ConnectionPool(connection_class=own, port=port))
    if way == "mixin":
        mixin = type("Mixin", (), {"on_connect": lambda self: None})
        own = type("Own", (mixin, pools.SSLConnection), {})
        return client(connection_pool=pools.ConnectionPool(connection_class=own, port=port))
    if way == "pool":
        own = type("Own", (pools.ConnectionPool,), {"make_connection": lambda self: None})
        return client(connection_pool=own(port=port))
    if way == "patched pool":
        pool = pools.ConnectionPool(port=port)
        pool.make_connection = lambda: None
        return client(connection_pool=pool)
    return client(port=port, single_connection_client=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "way", ["function", "connection", "mixin", "pool", "patched pool", "single connection"]
)
def test_a_client_that_may_enter_another_database_as_it_connects_is_refused(
    server: Server, library: str, way: str
) -> None:
    pytest.importorskip(library)
    client = entering(library, way, server.port)
    for connect in (interlock.connect, aio.connect):
        with pytest.raises(Unsupported, match=r"may .*select.* another database .* give connect a URL"):
            connect(client)
    with pytest.raises(Unsupported):
        interlock.connect([client, client, client])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("method", ["execute_command", "parse_response"])
@pytest.mark.parametrize("way", ["subclass", "mixin", "patched"])
def test_a_client_that_sends_commands_in_a_way_of_its_own_is_refused(
    server: Server, library: str, method: str, way: str
) -> None:
    """It may put a prefix before keys, as that of kombu does: the lock would be another one."""
    package = library.partition(".")[0]
    made: Any = getattr(pytest.importorskip(library), package.capitalize())
    own: dict[str, Any] = {method: lambda self, *words, **options: None}
    if way == "subclass":
        made = type("Own", (made,), own)
    elif way == "mixin":
        made = type("Own", (type("Mixin", (), own), made), {})
    client = made(port=server.port)
    if way == "patched":
        setattr(client, method, lambda *words, **options: None)
    for connect in (interlock.connect, aio.connect):
        with pytest.raises(Unsupported, match=rf"with its own {method} may send commands elsewhere"):
            connect(client)
    guard = guards.redis.AsyncGuard if "asyncio" in library else guards.redis.Guard
    with pytest.raises(Unsupported, match=rf"with its own {method} may send commands elsewhere"):
        guard(client)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_with_other_methods_of_its_own_is_taken(server: Server, library: str) -> None:
    package = library.partition(".")[0]
    made: Any = getattr(pytest.importorskip(library), package.capitalize())
    own = type("Own", (made,), {"stock": lambda self: self.get("stock")})
    client = interlock.connect(own(port=server.port))
    with client.lock(uuid4().hex):
        pass
    client.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_sentinels_that_choose_the_master_in_a_way_of_their_own_are_refused(library: str) -> None:
    pytest.importorskip(library)
    sentinels: Any = import_module(f"{library}.sentinel")
    own = type("Own", (sentinels.Sentinel,), {"discover_master": lambda self, name: ("h", 1)})
    pool = type("Own", (sentinels.SentinelConnectionPool,), {"get_master_address": lambda self: ("h", 1)})
    for client in (
        own([("h", 1)]).master_for("service"),
        sentinels.Sentinel([("h", 1)]).master_for("service", connection_pool_class=pool),
    ):
        with pytest.raises(Unsupported, match=r"its own (discover_master|get_master_address), may select"):
            interlock.connect(client)


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_connections_and_pools_of_the_libraries_are_taken(library: str) -> None:
    """They are not connected to: only what they are is checked."""
    package = library.partition(".")[0]
    made = pytest.importorskip(library)
    client: Any = getattr(made, package.capitalize())
    pools, sentinels = import_module(f"{library}.connection"), import_module(f"{library}.sentinel")
    for kind in (pools.ConnectionPool, pools.BlockingConnectionPool):
        for scheme in ("redis://h/3", "rediss://h/3", "unix:///s?db=3"):
            interlock.connect(client(connection_pool=kind.from_url(scheme))).close()
    for tls in (False, True):
        interlock.connect(sentinels.Sentinel([("h", 1)]).master_for("service", ssl=tls)).close()
    # A pool of the user's own may count, as long as the library makes its connections.
    counting = type("Counting", (pools.ConnectionPool,), {"release": lambda self, connection: None})
    interlock.connect(client(connection_pool=counting(host="h"))).close()


def test_a_client_of_a_cluster_with_a_function_of_its_own_as_it_connects_is_refused() -> None:
    class RedisCluster:
        __module__ = "redis.cluster"

        def __init__(self, **own: Any) -> None:
            node = SimpleNamespace(host="h", port=1)
            self.nodes_manager = SimpleNamespace(
                connection_kwargs={}, nodes_cache={"h:1": node}, **own.pop("manager", {})
            )
            vars(self).update(own)

    own = type("Own", (redis.Connection,), {})
    pool = type("OwnPool", (redis.ConnectionPool,), {"make_connection": lambda self: None})
    for client in (
        type("Own", (RedisCluster,), {"__module__": "mine", "execute_command": lambda self: None})(),
        type("Own", (RedisCluster,), {"__module__": "mine", "get_node_from_key": lambda self: None})(),
        RedisCluster(user_on_connect_func=select_five),
        RedisCluster(manager={"connection_pool_class": pool}),
    ):
        with pytest.raises(Unsupported, match="connect a URL"):
            interlock.connect(client)
    client = RedisCluster()
    client.nodes_manager.connection_kwargs["connection_class"] = own
    with pytest.raises(Unsupported, match="give connect a URL"):
        interlock.connect(client)


def test_a_client_of_a_cluster_or_of_something_else_is_refused() -> None:
    class RedisCluster:
        __module__ = "redis.cluster"

    with pytest.raises(Unsupported):
        interlock.connect(RedisCluster())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="connect takes a URL"):
        interlock.connect(7)  # type: ignore[arg-type]


def test_a_prefix_keeps_two_programs_apart(server: Server) -> None:
    one, other = (interlock.connect(server.url(f"{n}-{uuid4().hex}:")) for n in range(2))
    with one.lock("x"), other.lock("x", timeout=PATIENCE):
        assert one.inspect("x").holders != other.inspect("x").holders
        assert list(one.scan()) == ["x"]
    one.close()
    other.close()


def test_a_unix_socket_is_a_place(server: Server) -> None:
    url = f"unix://{server.folder}/socket?prefix={uuid4().hex}:"
    held_and_shown(interlock.connect(url))
    asyncio.run(held_and_shown_async(aio.connect(url)))


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with running("--requirepass", "unused") as server:
        with redis.Redis(port=server.port, password="unused") as admin:
            admin.acl_setuser(
                "locker",
                enabled=True,
                passwords=["+" + PASSWORD],
                keys=["*"],
                channels=["*"],
                commands=["+@all"],
            )
        yield server


def test_user_and_password_of_a_url_are_used_and_never_shown(guarded: Server) -> None:
    from urllib.parse import quote

    url = f"redis://locker:{quote(PASSWORD, safe='')}@127.0.0.1:{guarded.port}/0"
    client = interlock.connect(url)
    assert PASSWORD not in repr(client) + repr(client._core.store)
    held_and_shown(client)
    asyncio.run(held_and_shown_async(aio.connect(url)))


def test_user_and_password_of_a_client_are_used(guarded: Server) -> None:
    with redis.Redis(port=guarded.port, username="locker", password=PASSWORD) as theirs:
        held_and_shown(interlock.connect(theirs))


def test_tls_works_on_both_faces_and_a_strange_certificate_is_refused(tmp_path: Path) -> None:
    shown = certificate(tmp_path, "shown")
    with started(SecureServer(shown)) as server:
        url = f"rediss://127.0.0.1:{server.secure}/0?ssl_ca_certs={shown}"
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))
        stranger = interlock.connect(f"rediss://127.0.0.1:{server.secure}/0")
        with pytest.raises(StoreUnavailable, match="certificate"):
            stranger.lock("x").acquire(timeout=0.5)
        stranger.close()


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_server_with_a_certificate_for_another_name_does_not_get_the_password(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """valkey-py, and redis-py before 6, do not compare the names by themselves."""
    monkeypatch.setattr(address, "_library", lambda: package)
    shown = certificate(tmp_path, "shown", "DNS:elsewhere.example")
    with started(SecureServer(shown)) as server:
        url = f"rediss://:secret@127.0.0.1:{server.secure}/0?ssl_ca_certs={shown}"
        with interlock.connect(url) as client, pytest.raises(StoreUnavailable, match="certificate"):
            client.lock("x").acquire(timeout=0.5)
        with pytest.raises(StoreUnavailable, match="certificate"):
            asyncio.run(held_and_shown_async(aio.connect(url)))
        for unchecked in ("ssl_check_hostname=false", "ssl_cert_reqs=none"):
            held_and_shown(
                interlock.connect(f"rediss://127.0.0.1:{server.secure}/0?ssl_ca_certs={shown}&{unchecked}")
            )


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://localhost/zero", "is a number"),
        ("redis://localhost:99999/0", "port must be"),
        ("redis://localhost/0#x", "no #fragment"),
        ("redis://localhost/0?colour=red", "unknown option 'colour'"),
        ("redis://localhost/0?socket_connect_timeout=soon", "socket_connect_timeout .* a number"),
        ("redis://localhost/0?db=abc", "the option db .* a number"),
        ("redis://localhost/0?path=/x", "unknown option 'path'"),
        ("redis://localhost/0?credential_provider=x", "unknown option 'credential_provider'"),
        ("redis://localhost/0?socket_type=stream", "unknown option 'socket_type'"),
        ("redis://localhost/0?ssl_ca_certs=/x", "ssl_ca_certs is an option of TLS; .*rediss://"),
        ("redis://localhost/0?ssl_cert_reqs=none", "ssl_cert_reqs is an option of TLS"),
        ("unix:///socket?ssl_ca_certs=/x", "ssl_ca_certs is an option of TLS"),
        ("unix:///socket?host=localhost", "unknown option 'host'"),
        ("redis+sentinel://h1/service/0?ssl_ca_certs=/x", "ssl_ca_certs is an option of TLS"),
        ("redis+cluster://h1?ssl_ca_certs=/x", "ssl_ca_certs is an option of TLS"),
        ("redlock://h1,h2,h3?ssl_ca_certs=/x", "ssl_ca_certs is an option of TLS"),
        ("rediss://localhost/0?ssl_cert_reqs=bogus", "ssl_cert_reqs .* none, optional or required"),
        ("rediss://localhost/0?ssl_min_version=new", "ssl_min_version"),
        ("rediss://localhost/0?ssl_bogus=1", "unknown option 'ssl_bogus'"),
        ("rediss+sentinel://h1/service/0?ssl_cert_reqs=bogus", "ssl_cert_reqs"),
    ],
)
def test_a_wrong_url_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(InvalidURL, match=hint):
        interlock.connect(url)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_connections_of_its_own(server: Server) -> None:
    client, name = interlock.connect(server.url()), uuid4().hex
    lease = client.lock(name).acquire()
    assert lease
    waiting = threading.Thread(target=enter, args=(client, name))
    waiting.start()
    while not client.inspect(name).waiters:
        pass
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ours: Any = client.lock(name).acquire(blocking=False)
            with client.lock(name + "-child", timeout=PATIENCE):
                code = 0 if not ours and not client.lock(name).owned() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.release()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    client.close()
