"""Every error is redis-py's and interlock's at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions as theirs

import interlock
from interlock._core.lease import Lease
from interlock.contrib import redis_py
from interlock.contrib.redis_py import AsyncLock, Lock, possession
from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import Server, running
from tests.contrib.redis_py.party import OURS, Kind, Party, beside, until


@pytest.fixture(params=OURS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def test_who_did_not_get_in_is_told_who_holds(party: Party, other: Party, name: str) -> None:
    with party.lock(name) as lock:
        token = lock.local.token
        with pytest.raises(redis_py.LockTimeout) as error:
            with other.lock(name, blocking_timeout=0.05):
                pytest.fail("entered")
    assert isinstance(error.value, theirs.LockError)
    assert isinstance(error.value, interlock.AcquireTimeout)
    assert error.value.lock_name == name
    assert error.value.holders[0].id.encode() == token
    assert re.search(r"held \d+ ms|held 0\.\d s", str(error.value))
    assert "redis_py/party.py" in str(error.value), "the call site is not the user's"


def test_a_loss_tells_its_cause(party: Party, name: str) -> None:
    lock = party.lock(name)
    lock.acquire()
    party.ask("DEL", name)
    with pytest.raises(redis_py.LockLost, match="the store no longer knows it") as error:
        lock.release()
    assert isinstance(error.value, theirs.LockNotOwnedError)
    assert isinstance(error.value, interlock.LeaseLost)
    assert (error.value.lock_name, error.value.cause) == (name, "refused")


def test_a_place_that_an_operator_took_away_is_a_lock_error(
    party: Party, other: Party, name: str, server: Server
) -> None:
    waiting = other.lock(name, thread_local=False)
    with interlock.connect(server.url()) as operator, party.lock(name):
        with beside(waiting.acquire) as got:
            until(lambda: operator.inspect(name).waiters)
            operator.evict(name, reason="maintenance", id=operator.inspect(name).waiters[0].id)
    assert isinstance(got[0], theirs.LockError)
    assert isinstance(got[0], interlock.Evicted)
    assert "maintenance" in str(got[0])


def test_a_server_that_is_not_there_is_a_connection_error_of_both(kind: Kind, name: str) -> None:
    with Party(free_port(), kind) as party:
        with pytest.raises(theirs.ConnectionError, match=r"Redis at localhost") as error:
            party.lock(name).acquire()
    assert {ConnectionError, interlock.StoreUnavailable, theirs.TimeoutError} <= set(error.type.__mro__)


def test_a_server_that_went_away_lets_nobody_believe_in_a_release(kind: Kind, name: str) -> None:
    with running() as server, Party(server.port, kind) as party:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        server.kill()
        with pytest.raises(theirs.ConnectionError):
            lock.release()
        server.start()  # with an empty memory
        with pytest.raises(theirs.LockError):
            lock.release()


def test_a_refused_user_is_an_error_of_both(kind: Kind, name: str) -> None:
    with running("--requirepass", "secret") as server, Party(server.port, kind) as party:
        with pytest.raises(theirs.RedisError) as error:
            party.lock(name).acquire()
    assert isinstance(error.value, interlock.StoreUnfit)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["", "a\x00b", b"\xff", "x" * 1025], ids=["empty", "control", "binary", "long"]
)
def test_a_name_that_interlock_does_not_take_is_a_value_error(party: Party, name: str | bytes) -> None:
    with pytest.raises(ValueError):
        party.lock(name).acquire(blocking=False)


def test_errors_survive_the_way_from_a_worker_to_its_parent(party: Party, other: Party, name: str) -> None:
    lock = party.lock(name)
    lock.acquire()
    with pytest.raises(redis_py.LockTimeout) as timeout:
        with other.lock(name, blocking=False):
            pytest.fail("entered")
    party.ask("DEL", name)
    with pytest.raises(redis_py.LockLost) as loss:
        lock.release()
    for error in (timeout.value, loss.value):
        ways: list[Any] = [
            pickle.loads(pickle.dumps(error)),
            type(error)(*error.args),
            type(error)(*json.loads(json.dumps(error.args))),
        ]
        for again in ways:
            assert type(again) is type(error)
            assert str(again) == str(error)
            assert again.lock_name == name
            assert vars(again) == vars(error)


def test_a_lock_held_by_a_semaphore_is_a_value_error(party: Party, name: str, server: Server) -> None:
    with interlock.connect(server.url()) as client, client.semaphore(name, capacity=3):
        with pytest.raises(interlock.SettingsMismatch):
            party.lock(name).acquire(blocking=False)


def test_a_client_that_may_enter_another_database_as_it_connects_is_refused(server: Server) -> None:
    """Its own commands, and redis-py's locks through it, would look for the lock somewhere else."""

    def select_five(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("SELECT", 5)
        connection.read_response()

    untyped: Any = select_five
    with redis.Redis(port=server.port, redis_connect_func=untyped) as client:
        lock = client.lock("x", timeout=5, lock_class=Lock)
        with pytest.raises(interlock.Unsupported, match="another database"):
            lock.acquire(blocking=False)
        assert not client.exists("x")


def test_a_client_of_many_servers_is_refused_in_one_sentence() -> None:
    class Cluster:
        __module__ = "redis.cluster"

    with pytest.raises(interlock.Unsupported, match="no client of one server"):
        Lock(Cluster(), "x").acquire()


def test_who_fails_on_the_last_step_leaves_nothing_behind(
    party: Party, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        assert party.kind.asynchronous or redis_locked()
        raise ZeroDivisionError

    def redis_locked() -> bool:
        return bool(party.ask("EXISTS", name))

    monkeypatch.setattr(
        possession, "WHOLE_PART", 2.0
    )  # as if it had been handed over with little left of its place
    monkeypatch.setattr(Lease, "_renew_now", fail)
    lock = party.lock(name, timeout=30)
    with pytest.raises(ZeroDivisionError):
        lock.acquire()
    assert lock.local.token is None
    assert not redis_locked()


def test_who_is_cancelled_leaves_nothing_behind(server: Server, name: str) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis(port=server.port)
        holder, waiter = (client.lock(name, timeout=30, lock_class=AsyncLock) for _ in range(2))
        operator = interlock.aio.connect(server.url())
        await holder.acquire()
        waiting = asyncio.create_task(waiter.acquire())
        while not (await operator.inspect(name)).waiters:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not (await operator.inspect(name)).waiters
        assert waiter.local.token is None

        releasing = asyncio.create_task(holder.release())
        await asyncio.sleep(0)
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        assert not await holder.locked()
        await operator.close()
        await client.aclose()

    asyncio.run(main())
