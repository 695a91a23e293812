"""Commands and scripts on real Redis servers, under the token of a lease."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio
import redis.backoff
import redis.retry
import valkey
import valkey.asyncio as valkey_asyncio
from valkey.exceptions import ValkeyClusterException

import interlock
from interlock import StaleToken, StoreUnavailable, StoreUnfit, guards
from interlock.testing.servers.cluster import alone
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server, running
from interlock.testing.servers.sentinel import watched
from tests.sql import forked


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(params=["bytes", "text"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    with redis.Redis(port=server.port, decode_responses=request.param == "text") as client:
        client.flushall()
        yield client


def test_a_command_runs_under_a_token_and_an_earlier_holder_is_refused(client: Any) -> None:
    guard = guards.redis.Guard(client)
    client.set("stock", 10)
    assert guard.execute("stock:tea", "DECRBY", "stock", 1, token=33) == 9
    assert guard.execute("stock:tea", "DECRBY", "stock", 1, token=34) == 8
    assert guard.execute("stock:tea", "DECRBY", "stock", 1, token=34) == 7
    with pytest.raises(StaleToken) as refusal:
        guard.execute("stock:tea", "DECRBY", "stock", 1, token=33)
    assert (refusal.value.resource, refusal.value.token, refusal.value.accepted) == ("stock:tea", 33, 34)
    assert int(client.get("stock")) == 7


def test_a_lease_of_any_store_is_accepted_while_it_is_held(client: Any) -> None:
    guard = guards.redis.Guard(client)
    with interlock.connect("memory://") as locks:
        with locks.lock("stock:tea") as lease:
            assert guard.execute(lease, "INCRBY", "stock", 5) == 5
        with pytest.raises(interlock.NotHeld):
            guard.execute(lease, "INCRBY", "stock", 5)


def test_a_script_sees_its_own_keys_and_arguments(client: Any) -> None:
    guard = guards.redis.Guard(client)
    script = "redis.call('set', KEYS[1], ARGV[1])\nreturn #KEYS * 10 + #ARGV -- a comment ends it"
    assert guard.eval("r", script, ["a", "b"], ["one", "two", "three"], token=34) == 23
    assert client.get("a") in (b"one", "one")
    with pytest.raises(StaleToken):
        guard.eval("r", script, ["a"], ["late"], token=33)
    assert client.get("a") in (b"one", "one")


@pytest.mark.parametrize(("low", "high"), [(9, 10), (2**53, 2**53 + 1), (2**62, 2**63 - 1)])
def test_tokens_are_compared_exactly(client: Any, low: int, high: int) -> None:
    guard = guards.redis.Guard(client)
    guard.execute("r", "SET", "a", 1, token=high)
    with pytest.raises(StaleToken):
        guard.execute("r", "SET", "a", 2, token=low)


def test_a_reply_of_nothing_and_an_error_of_the_command_come_through(client: Any) -> None:
    guard = guards.redis.Guard(client)
    assert guard.execute("r", "GET", "nothing", token=1) is None
    client.set("text", "x")
    with pytest.raises(redis.ResponseError):
        guard.execute("r", "INCR", "text", token=1)
    assert guard.execute("r", "OBJECT ENCODING", "text", token=1)  # a command of two words


def test_a_flushed_script_cache_is_no_error(client: Any) -> None:
    guard = guards.redis.Guard(client)
    guard.execute("r", "SET", "a", 1, token=1)
    client.script_flush()
    guard.execute("r", "SET", "a", 2, token=1)


def test_tokens_are_remembered_for_as_long_as_was_asked(client: Any) -> None:
    for_ever, for_a_minute = guards.redis.Guard(client), guards.redis.Guard(client, prefix="x:", remember=60)
    for guard in (for_ever, for_a_minute):
        guard.execute("r", "SET", "a", 1, token=1)
    assert client.pttl(for_ever.key("r")) == -1
    assert 0 < client.pttl(for_a_minute.key("r")) <= 60_000


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"args": ()}, TypeError),
        ({"args": (7,)}, TypeError),
        ({"args": ("GET", "a"), "token": None}, TypeError),
        ({"args": ("GET", "a"), "token": -1}, ValueError),
    ],
)
def test_misuse_is_refused(client: Any, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        guards.redis.Guard(client).execute("r", *arguments["args"], token=arguments.get("token", 1))


def test_the_wrong_kind_of_client_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match=r"guards\.redis\.Guard"):
        guards.redis.AsyncGuard(client)
    with pytest.raises(TypeError, match=r"guards\.redis\.AsyncGuard"):
        guards.redis.Guard(redis.asyncio.Redis())
    with pytest.raises(TypeError, match="redis-py"):
        guards.redis.Guard("redis://localhost")
    with pytest.raises(ValueError, match="#!"):
        guards.redis.Guard(client).eval("r", "#!lua\nreturn 1", token=1)
    for seconds in (0, float("inf"), float("nan"), 1e30):
        with pytest.raises(ValueError, match="remember"):
            guards.redis.Guard(client, remember=seconds)


def test_a_pipeline_is_refused_because_it_answers_too_late(client: Any) -> None:
    with pytest.raises(TypeError, match="pipeline"):
        guards.redis.Guard(client.pipeline())
    with pytest.raises(TypeError, match="pipeline"):
        guards.redis.AsyncGuard(redis.asyncio.Redis().pipeline())


@pytest.mark.parametrize("value", ["text", "", "12 monkeys", ["a list"]])
def test_a_key_of_tokens_that_holds_something_else_is_left_alone(client: Any, value: Any) -> None:
    guard = guards.redis.Guard(client)
    key = guard.key("r")
    client.rpush(key, *value) if isinstance(value, list) else client.set(key, value)
    with pytest.raises(StoreUnfit, match="no token"):
        guard.execute("r", "SET", "a", 1, token=1)
    assert client.get("a") is None
    assert client.type(key) in ((b"list", "list") if isinstance(value, list) else (b"string", "string"))


def repeating(library: Any, kind: Any, port: int, **settings: Any) -> Any:
    """A client that would send a request again after a lost reply, as those of redis-py 6 and later do."""
    retry = library.retry.Retry(library.backoff.NoBackoff(), 3)
    return kind(port=port, retry=retry, retry_on_error=[library.ConnectionError], **settings)


def a_lost_reply(guard: guards.redis.Guard, proxy: Proxy, key: str = "n") -> None:
    """A write whose reply is lost is done once, its caller is told so, and the next one is done as ever."""
    writes: list[Callable[[], Any]] = [
        lambda: guard.execute("r", "INCRBY", key, 1, token=5),
        lambda: guard.eval("r", "return redis.call('incr', KEYS[1])", [key], token=5),
    ]
    for done, write in zip((1, 3), writes, strict=True):
        # The server knows the script from here on, and the connection is made: the next reply is the write's.
        assert write() == done
        proxy.replies.cut()
        with pytest.raises(StoreUnavailable, match="may have been applied"):
            write()
    assert guard.execute("r", "GET", key, token=5) in (b"4", "4")


@pytest.mark.parametrize("library", [redis, valkey])
@pytest.mark.parametrize("alone", [False, True], ids=["pool", "one connection"])
def test_a_write_whose_reply_is_lost_is_not_sent_again(server: Server, library: Any, alone: bool) -> None:
    kind = library.Redis if library is redis else library.Valkey
    with Proxy(server.port) as proxy:
        with repeating(library, kind, proxy.port, single_connection_client=alone) as client:
            client.flushall()
            a_lost_reply(guards.redis.Guard(client), proxy)


def test_a_write_whose_reply_is_lost_is_not_sent_again_by_a_client_of_sentinels() -> None:
    with watched() as sentinels, Proxy(sentinels.master().port) as proxy:
        service: Any = redis.Sentinel(sentinels.addresses())
        # The address of the master, as the sentinels would tell it if the proxy stood before it.
        service.discover_master = lambda _: ("127.0.0.1", proxy.port)
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 3)
        with service.master_for("any", retry=retry) as client:
            a_lost_reply(guards.redis.Guard(client), proxy)


@pytest.mark.parametrize(
    ("cluster", "async_cluster"),
    [
        (redis.RedisCluster, redis.asyncio.RedisCluster),
        (valkey.ValkeyCluster, valkey_asyncio.ValkeyCluster),
    ],
    ids=["redis", "valkey"],
)
def test_a_write_whose_reply_is_lost_is_not_sent_again_to_a_cluster(cluster: Any, async_cluster: Any) -> None:
    with alone() as node, Proxy(node.port) as proxy:
        remap: Any = {"address_remap": lambda _: ("127.0.0.1", proxy.port)}  # pyright: ignore[reportUnknownLambdaType]
        with cluster(host="127.0.0.1", port=proxy.port, **remap) as client:
            a_lost_reply(guards.redis.Guard(client), proxy, "n{r}")

        async def main() -> None:
            async with async_cluster(host="127.0.0.1", port=proxy.port, **remap) as client:
                guard = guards.redis.AsyncGuard(client)
                assert await guard.execute("s", "INCRBY", "n{s}", 1, token=5) == 1
                proxy.replies.cut()
                with pytest.raises(StoreUnavailable, match="may have been applied"):
                    await guard.execute("s", "INCRBY", "n{s}", 1, token=5)
                # A client that has lost a node closes its connections only if it has looked for it again; that
                # of valkey-py does not find the only node.
                with suppress(ValkeyClusterException):
                    await client.initialize()
            with redis.Redis(port=node.port) as direct:
                assert direct.get("n{s}") == b"2"

        asyncio.run(main())


@pytest.mark.parametrize("library", [redis, valkey])
def test_a_write_of_asyncio_whose_reply_is_lost_is_not_sent_again(server: Server, library: Any) -> None:
    kind = redis.asyncio.Redis if library is redis else valkey_asyncio.Valkey

    async def main() -> None:
        name = uuid4().hex
        with Proxy(server.port) as proxy:
            retry = library.asyncio.retry.Retry(library.backoff.NoBackoff(), 3)
            async with kind(port=proxy.port, retry=retry) as client:
                guard = guards.redis.AsyncGuard(client)
                assert await guard.execute(name, "INCRBY", name, 1, token=5) == 1
                proxy.replies.cut()
                with pytest.raises(StoreUnavailable, match="may have been applied"):
                    await guard.execute(name, "INCRBY", name, 1, token=5)
                assert await guard.execute(name, "GET", name, token=5) == b"2"

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("kind", [redis.asyncio.Redis, valkey_asyncio.Valkey])
def test_a_guard_of_asyncio_that_the_parent_has_used_is_refused_in_a_forked_child(
    server: Server, kind: Any
) -> None:
    async def main() -> None:
        name = uuid4().hex
        async with kind(port=server.port) as client:
            used, unused = guards.redis.AsyncGuard(client), guards.redis.AsyncGuard(client)
            assert await used.execute(name, "INCRBY", name, 1, token=5) == 1

            def in_child(guard: Any) -> str:
                return forked.said_in_a_child(
                    lambda: asyncio.run(guard.execute(name, "INCRBY", name, 1, token=5))
                )

            for guard in (used, unused):
                assert "StoreUnfit" in in_child(guard)
                assert "after the fork" in in_child(guard)
            assert await used.execute(name, "INCRBY", name, 1, token=5) == 2
        fresh = kind(port=server.port)
        guard = guards.redis.AsyncGuard(fresh)

        async def first() -> int:
            async with fresh:
                return int(await guard.execute(name, "INCRBY", name, 1, token=5))

        assert forked.said_in_a_child(lambda: asyncio.run(first())) == "'no error: 3'"

    asyncio.run(main())


def killing(port: int) -> None:
    with redis.Redis(port=port) as operator:
        operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    time.sleep(0.05)  # the loop is busy meanwhile, and sees nothing of it


@pytest.mark.parametrize("library", [redis, valkey])
@pytest.mark.parametrize("retries", [0, 3])
def test_a_connection_that_the_server_closed_while_idle_is_replaced_before_a_write(
    server: Server, library: Any, retries: int
) -> None:
    kind = library.Redis if library is redis else library.Valkey
    retry = library.retry.Retry(library.backoff.NoBackoff(), retries)
    with kind(port=server.port, retry=retry) as client:
        guard, name = guards.redis.Guard(client), uuid4().hex
        for done in (1, 2, 3):
            assert guard.execute(name, "INCR", name, token=5) == done
            killing(server.port)


@pytest.mark.parametrize("library", [redis, valkey])
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("busy", [False, True], ids=["idle loop", "busy loop"])
def test_a_connection_of_asyncio_that_the_server_closed_while_idle_is_replaced_before_a_write(
    server: Server, library: Any, retries: int, busy: bool
) -> None:
    kind = redis.asyncio.Redis if library is redis else valkey_asyncio.Valkey

    async def main() -> None:
        retry = library.asyncio.retry.Retry(library.backoff.NoBackoff(), retries)
        async with kind(port=server.port, retry=retry) as client:
            guard, name = guards.redis.AsyncGuard(client), uuid4().hex
            for done in (1, 2, 3):
                assert await guard.execute(name, "INCR", name, token=5) == done
                killing(server.port)
                if not busy:
                    await asyncio.sleep(0.05)

    asyncio.run(main())


@pytest.mark.parametrize(
    "kind", [redis.asyncio.RedisCluster, valkey_asyncio.ValkeyCluster], ids=["redis", "valkey"]
)
def test_a_connection_of_a_cluster_that_the_server_closed_while_idle_is_replaced_before_a_write(
    kind: Any,
) -> None:
    async def main(port: int) -> None:
        async with kind(host="127.0.0.1", port=port) as client:
            guard = guards.redis.AsyncGuard(client)
            for done in (1, 2, 3):
                assert await guard.execute("s", "INCR", "n{s}", token=5) == done
                killing(port)

    with alone() as node:
        asyncio.run(main(node.port))


def test_a_server_that_is_not_there_has_had_no_effect(server: Server) -> None:
    with Proxy(server.port) as proxy:
        port = proxy.port
    with redis.Redis(port=port) as client:
        with pytest.raises(interlock.StoreUnavailable) as failure:
            guards.redis.Guard(client).execute("r", "INCR", "n", token=5)
    assert "may have been applied" not in str(failure.value)


def test_a_wrong_password_is_not_a_lost_reply(server: Server) -> None:
    with redis.Redis(port=server.port, username="nobody", password="wrong") as client:
        with pytest.raises(StoreUnfit, match="password"):
            guards.redis.Guard(client).execute("r", "INCR", "n", token=5)


def test_a_connection_goes_back_to_the_pool_also_after_a_refusal(server: Server) -> None:
    pool = redis.ConnectionPool(port=server.port, max_connections=1)
    with redis.Redis(connection_pool=pool) as client:
        guard, name = guards.redis.Guard(client), uuid4().hex
        client.set(name, "text")
        for _ in range(3):
            with pytest.raises(redis.ResponseError):
                guard.execute(name, "INCR", name, token=5)
            with pytest.raises(StaleToken):
                guard.execute(name, "GET", name, token=4)
        assert client.get(name) == b"text"


def test_asyncio(server: Server) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port) as client:
            guard = guards.redis.AsyncGuard(client, prefix=uuid4().hex)
            assert await guard.execute("r", "INCRBY", f"n{uuid4().hex}", 2, token=34) == 2
            assert await guard.eval("r", "return ARGV[1]", [], ["x"], token=34) == b"x"
            with pytest.raises(StaleToken):
                await guard.execute("r", "INCRBY", "n", 2, token=33)

    asyncio.run(main())


def test_on_a_cluster_keys_must_be_in_the_slot_of_the_resource() -> None:
    with alone() as node, redis.RedisCluster(host="127.0.0.1", port=node.port) as client:
        guard = guards.redis.Guard(client)
        assert guard.execute("tea", "INCRBY", "stock:{tea}", 5, token=34) == 5
        assert guard.execute("lock:{shop}", "INCRBY", "stock:{shop}", 5, token=34) == 5
        assert guard.execute("tea", "MSET", "a{tea}", 1, "b{tea}", 2, token=34, keys=["a{tea}", "b{tea}"])
        with pytest.raises(StaleToken):
            guard.execute("tea", "INCRBY", "stock:{tea}", 5, token=33)
        with pytest.raises(ValueError, match=r"\{tea\}"):
            guard.execute("tea", "INCRBY", "stock", 5, token=35)


def test_an_error_that_a_script_returns_is_raised_as_it_is_without_a_guard(
    client: Any, server: Server
) -> None:
    """It came back as a value that is an exception, so the caller took the write for done."""
    guard = guards.redis.Guard(client)
    client.set("text", "x")
    for script in ("return redis.pcall('incr', KEYS[1])", "return redis.error_reply('OUT of stock')"):
        with pytest.raises(redis.ResponseError) as bare:
            client.eval(script, 1, "text")
        with pytest.raises(redis.ResponseError) as guarded:
            guard.eval("stock:tea", script, ["text"], token=7)
        assert str(guarded.value) == str(bare.value)

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as connected:
            with pytest.raises(redis.ResponseError):
                await guards.redis.AsyncGuard(connected).eval("stock:tea", script, ["text"], token=7)

    asyncio.run(work())
