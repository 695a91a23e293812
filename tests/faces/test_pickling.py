"""What can be sent to another process: clients by their URL. What cannot says so, and what to send in its place."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import aio, events, urls


def heard(event: events.Event) -> None: ...


def try_it(client: interlock.Client) -> tuple[str, object]:
    """In the worker: what `with` says while the parent holds the lock."""
    os.chdir("/")
    try:
        with client, client.lock("x", timeout=0):
            return "held", client.inspect("x").holders[0].who
    except interlock.AcquireTimeout as error:
        return "refused", error


def raise_it(client: interlock.Client) -> None:
    with client, client.lock("x", timeout=0):
        pass


def test_a_client_connects_anew_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a relative path, too: another working directory there must not mean another file."""
    monkeypatch.chdir(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    with interlock.connect("sqlite:///locks.db", ttl=7) as client:
        with ProcessPoolExecutor(1, spawn) as pool:
            with client.lock("x") as lease:
                word, error = pool.submit(try_it, client).result()
                assert word == "refused"
                assert isinstance(error, interlock.AcquireTimeout)
                assert error.holders[0].token == lease.token
                with pytest.raises(interlock.AcquireTimeout) as raised:
                    pool.submit(raise_it, client).result()
                assert raised.value.holders[0].token == lease.token
            assert pool.submit(try_it, client).result()[0] == "held"


@pytest.mark.parametrize("connect", [interlock.connect, aio.connect], ids=["sync", "async"])
def test_a_client_keeps_its_settings(connect: Callable[..., Any], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a%20b%3Fc.db"
    client = connect(url, ttl=7, listener=heard)
    again = pickle.loads(pickle.dumps(client))
    assert type(again) is type(client)
    assert again._core.ttl == 7
    assert again._core.store.path == client._core.store.path == f"{tmp_path}/a b?c.db"
    assert again._origin == client._origin

    async def close() -> None:
        for one in (client, again):
            await one.close()

    if connect is aio.connect:
        asyncio.run(close())
    else:
        client.close()
        again.close()


def test_a_place_is_settled_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLOCK_URL", "sqlite:///mine.db?allow_network_filesystem=1")
    assert urls.settled(None) == f"sqlite:///{tmp_path}/mine.db?allow_network_filesystem=1"
    monkeypatch.setenv("INTERLOCK_URL", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert urls.settled(None) == urls.settled("sqlite://") == f"sqlite:///{tmp_path}/interlock/locks.db"
    assert urls.settled("redis://:secret@h/1") == "redis://:secret@h/1"
    assert urls.settled(["redis://a", "redis://b", "redis://c"]) == ["redis://a", "redis://b", "redis://c"]
    assert urls.settled(["redis://a", redis.Redis(), "redis://c"]) is None
    assert urls.settled(redis.Redis()) is None


def test_a_client_that_no_url_can_make_again_says_what_to_do() -> None:
    with interlock.connect(redis.Redis(port=1)) as client:
        with pytest.raises(TypeError, match="not from a URL: connect in the worker"):
            pickle.dumps(client)
    with interlock.connect("memory://") as client:
        with pytest.raises(TypeError, match="seen by one process alone: connect in the worker"):
            pickle.dumps(client)
        with pytest.raises(TypeError, match="not made by connect"):
            pickle.dumps(interlock.Client(client._core))
    with pytest.raises(interlock.ClientClosed):
        pickle.dumps(client)


@pytest.mark.parametrize("face", [interlock, aio], ids=["sync", "async"])
def test_locks_and_leases_stay_where_they_are(face: Any) -> None:
    client: Any = face.connect("memory://")
    staying: list[Any] = [
        client.lock("x"),
        client.rlock("x"),
        client.rwlock("x"),
        client.rwlock("x").read(),
        client.semaphore("x"),
        client.multilock(["x"]),
        client.once("x"),
        client.event("x"),
        client.condition("x"),
        client.barrier("x", 2),
    ]
    if face is interlock:
        staying += [client.lock("x").acquire(), client.multilock(["y"]).acquire()]
    for thing in staying:
        for send in (pickle.dumps, copy.deepcopy):
            with pytest.raises(
                TypeError, match=f"a {type(thing).__name__} stays in the process that made it: send names"
            ):
                send(thing)
    if face is interlock:
        client.close()


class TestMaking:
    NOT_MADE_BY_CLIENTS = frozenset({"Client", "Lease", "MultiLease", "Value"})

    @pytest.mark.parametrize("face", [interlock, aio], ids=["sync", "async"])
    def test_a_class_says_how_its_objects_are_made(self, face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTERLOCK_URL", "memory://made")
        kinds = [getattr(aio, name) for name in aio.__all__ if name not in self.NOT_MADE_BY_CLIENTS]
        kinds = [getattr(face, kind.__name__) for kind in kinds if isinstance(kind, type)]
        assert len(kinds) >= 16
        for kind in kinds:
            for args, options in [(("x",), {}), ((), {}), (("x", 3), {"ttl": 5}), ((object(), "x"), {})]:
                with pytest.raises(
                    TypeError, match=f"^{kind.__name__} objects are made by a client: "
                ) as told:
                    kind(*args, **options)
            advice = str(told.value).partition(": ")[2]
            assert isinstance(eval(advice, {"interlock": interlock}), kind), advice

    @pytest.mark.parametrize("face", [interlock, aio], ids=["sync", "async"])
    def test_a_client_says_how_it_is_made(self, face: Any) -> None:
        with pytest.raises(TypeError, match=r"a client is made by interlock\.(aio\.)?connect\(url\)"):
            face.Client("redis://localhost")
