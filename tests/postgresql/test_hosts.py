"""A URL with several hosts: one that hangs, is not known, or takes no writes does not keep a client from the others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import interlock
import interlock.aio
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.postgresql import Server, fresh_schema, running
from interlock.testing.servers.process import free_port
from tests.patience import PATIENCE, until

CONNECT = 2.0  # seconds that a client may take for its first connection


@pytest.fixture(scope="module")
def old() -> Iterator[Server]:
    """The server that is named first."""
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def new() -> Iterator[Server]:
    with running() as server:
        yield server


def several(*servers: Server, hosts: str = "", **options: object) -> str:
    named = hosts or ",".join(f"127.0.0.1:{server.port}" for server in servers)
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return f"postgresql://postgres@{named}/postgres?schema={fresh_schema()}{query}"


def locked(url: str, colour: str, times: int = 1) -> None:
    """A client takes a lock, with a connection of its own each time."""
    limit = stretched(CONNECT)

    async def alock() -> None:
        async with interlock.aio.connect(url, connect_timeout=limit) as client:
            for _ in range(times):
                async with client.lock("x", timeout=limit):
                    pass

    if colour == "async":
        asyncio.run(alock())
        return
    with interlock.connect(url, connect_timeout=limit) as client:
        for _ in range(times):
            with client.lock("x", timeout=limit):
                pass


both = pytest.mark.parametrize("colour", ["sync", "async"])


@both
def test_a_host_that_hangs_leaves_time_for_the_next(old: Server, new: Server, colour: str) -> None:
    with old.frozen():
        locked(several(old, new), colour)


def test_it_is_asked_last_afterwards(old: Server, new: Server) -> None:
    """Otherwise every new connection, such as one for a renewal, would lose half of its time there."""
    limit = stretched(CONNECT)
    with old.frozen(), interlock.connect(several(old, new), connect_timeout=limit) as client:
        with client.lock("x", timeout=limit):
            pass
        for _ in range(3):
            new.terminate_backends()
            with at_most(limit / 4):
                with client.lock("x", timeout=limit):
                    pass


def test_a_lease_outlives_the_move_to_the_next_host(old: Server, new: Server) -> None:
    """The keeper's connection finds the next host, too: `renew` needs no more than its share of the ttl."""
    ttl = stretched(3.0)
    with interlock.connect(several(old, new), connect_timeout=CONNECT, ttl=ttl) as client:
        with client.lock("x"):
            pass
        with old.frozen():
            lease = until(lambda: taken(client))
            assert lease
            deadline = lease.deadline
            while lease.deadline <= deadline + ttl:
                lease.check()
                lease.lost.wait(0.05)


def taken(client: interlock.Client) -> interlock.Lease | None:
    """A lease, once a server answers again."""
    try:
        return client.lock("y").acquire(timeout=1.0)
    except StoreUnavailable:
        return None


Look = Callable[..., Any]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`nowhere.test` has no address, `slow.test` is never answered, and `here.test` is this machine."""
    look: Look = socket.getaddrinfo
    over = threading.Event()

    def getaddrinfo(host: Any, *args: Any, **settings: Any) -> Any:
        if host == "nowhere.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "slow.test":
            over.wait(PATIENCE)
        return look("127.0.0.1" if str(host).endswith(".test") else host, *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield
    over.set()


@both
@pytest.mark.parametrize("first", ["nowhere.test", "slow.test"])
def test_a_name_that_cannot_be_looked_up_does_not_hide_the_others(
    new: Server, names: None, first: str, colour: str
) -> None:
    locked(several(hosts=f"{first}:1,here.test:{new.port}"), colour)


def test_if_no_host_can_be_reached_one_sentence_names_all(names: None) -> None:
    port = free_port()
    with interlock.connect(
        several(hosts=f"nowhere.test:1,127.0.0.1:{port}"), connect_timeout=CONNECT
    ) as client:
        with pytest.raises(StoreUnavailable) as refusal:
            client.lock("x").acquire(timeout=1)
    said = str(refusal.value)
    assert "nowhere.test" in said
    assert f"port {port} failed" in said
    assert "Connection refused; is the server running" in said
    assert said.count("postgresql://") == 1


def test_a_wrong_password_is_not_tried_on_the_next_host(old: Server, new: Server) -> None:
    new.sql("create role someone login")
    url = several(old, new).replace("postgres@", "someone@", 1)
    with interlock.connect(url, connect_timeout=CONNECT) as client:
        with pytest.raises(StoreUnfit, match='role "someone" does not exist'):
            client.lock("x").acquire(timeout=1)


def reads_only(server: Server) -> bool:
    return server.sql("show default_transaction_read_only") == [("on",)]


def test_a_caller_waits_for_the_promotion_of_a_host(old: Server, new: Server) -> None:
    """With `target_session_attrs` libpq turns away from a server that takes no writes yet."""
    for server in (old, new):
        server.sql("alter system set default_transaction_read_only = on")
        server.sql("select pg_reload_conf()")
        until(partial(reads_only, server))
    held: list[object] = []
    with interlock.connect(several(old, new, target_session_attrs="read-write")) as client:

        def ask() -> None:
            held.append(client.lock("x").acquire(timeout=PATIENCE))

        caller = threading.Thread(target=ask)
        caller.start()
        caller.join(0.5)
        assert caller.is_alive()
        for server in (new, old):
            server.sql("alter system reset default_transaction_read_only")
            server.sql("select pg_reload_conf()")
        caller.join(PATIENCE)
        assert held
        assert held[0]
