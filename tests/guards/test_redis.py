"""Commands and scripts on real Redis servers, under the token of a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio

import interlock
from interlock import StaleToken, guards
from tests.redis.clusters import alone
from tests.redis.server import Server, running


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
    with pytest.raises(ValueError, match="remember"):
        guards.redis.Guard(client, remember=0)


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
