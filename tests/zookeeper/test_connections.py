"""The connection of a client: servers that are dead, mute or of another product, requests that are too long, and dropped clients."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import interlock
from interlock import aio
from interlock.errors import InterlockError, InvalidSetting, Unreached
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.process import free_port
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.zookeeper import Servers
from tests.attacks.servers.between import OTHERS
from tests.fake_server import answering
from tests.patience import PATIENCE, until
from tests.zookeeper.stores import session_client_of

CONNECT = 0.5  # seconds
DEAD = 2.0  # seconds that are given to a dead server: three times as many are seen on a busy machine, too
THREAD = "interlock-zookeeper"


def connections() -> int:
    """How many threads of connections there are."""
    return sum(thread.name == THREAD for thread in threading.enumerate())


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("mute", [False, True])
def test_a_server_that_is_dead_costs_one_connect_timeout_in_all(mute: bool) -> None:
    with answering(b"") as listening:
        port = listening if mute else free_port()
        with interlock.connect(f"zookeeper://127.0.0.1:{port}", connect_timeout=DEAD) as client:
            with at_most(DEAD + stretched(0.25)), pytest.raises(Unreached):
                client.lock("x").acquire()
            with at_most(DEAD + stretched(0.25)), pytest.raises(Unreached):
                client.register("x").read()


def failing_client() -> None:
    client = interlock.connect(f"zookeeper://127.0.0.1:{free_port()}", connect_timeout=0.1)
    with pytest.raises(Unreached):
        client.lock("x").acquire(timeout=0.1)


@pytest.mark.parametrize("kind", ["connected", "used", "failed", "async", "waiting"])
def test_a_client_that_is_dropped_without_close_leaves_neither_a_thread_nor_a_socket(
    url: str, kind: str
) -> None:
    def used() -> None:
        client = interlock.connect(url)
        with client.lock("x"):
            client.register("r").update(lambda _: 1)
        assert session_client_of(client).session

    def connected() -> None:
        client = interlock.connect(url)
        assert not client.lock("x").locked()

    def waiting() -> None:
        with interlock.connect(url) as other, other.lock("x"):
            client = interlock.connect(url)
            assert not client.lock("x").acquire(timeout=0.2)

    async def use() -> None:
        client = aio.connect(url)
        async with client.lock("x"):
            pass

    drop: Callable[[], None] = {
        "connected": connected,
        "used": used,
        "failed": failing_client,
        "async": lambda: asyncio.run(use()),
        "waiting": waiting,
    }[kind]
    drop()  # whatever the first one leaves behind is made once, as a cache is
    gc.collect()
    until(lambda: not connections())
    before = files()
    for _ in range(3):
        drop()
    gc.collect()
    until(lambda: not connections())
    until(lambda: files() <= before)


def test_the_session_of_a_dropped_client_ends_with_it(ensemble: Servers) -> None:
    """The servers would keep it for as long as its thread writes to it."""
    kazoo = KazooClient(hosts=ensemble.hosts)
    kazoo.start()
    try:
        client = interlock.connect(ensemble.fresh(session=60))
        with client.lock("x"):
            pass
        session_client, session = session_client_of(client), session_client_of(client).session
        assert session is not None
        session_client.beat(session, None)
        until(lambda: session.node_made)
        path = session_client.paths.session(session.number)
        assert kazoo.exists(path)
        del client, session_client
        gc.collect()
        until(lambda: not kazoo.exists(path))
    finally:
        kazoo.stop()
        kazoo.close()


@pytest.mark.parametrize("product", [product for product, reply in OTHERS.items() if reply])
def test_another_product_on_the_port_is_called_that_and_no_quorum_is_blamed(product: str) -> None:
    with answering(OTHERS[product]) as port:
        with interlock.connect(f"zookeeper://127.0.0.1:{port}", connect_timeout=CONNECT) as client:
            with pytest.raises(InterlockError) as refusal:
                client.lock("x").acquire(timeout=0.1)
    text = str(refusal.value)
    assert f"127.0.0.1:{port}" in text
    assert "not ZooKeeper" in text
    assert "quorum" not in text


def test_a_value_that_is_longer_than_a_request_may_be_is_refused_and_the_connection_stays(
    ensemble: Servers,
) -> None:
    """The servers hang up on a longer one, and every lease of the client is in doubt."""
    doubts: list[object] = []
    with interlock.connect(ensemble.fresh()) as client:
        session_client_of(client).on_doubt.append(lambda: doubts.append(1))
        register = client.register("r")
        longest = client._core.store.traits.largest_value
        assert longest is not None
        assert register.compare_and_set(0, "x" * (longest - 2))  # JSON adds two quotation marks
        # The last is longer than a register of any store may be.
        for more, most in ((1, longest), (4_000, longest), (47_000, 1 << 20)):
            with pytest.raises(InvalidSetting, match=f"at most {most}"):
                register.update(lambda _, more=more: "x" * (longest - 2 + more))  # type: ignore[misc]
        assert len(register.read().value) == longest - 2
        with client.lock("x", timeout=PATIENCE):
            pass
    assert not doubts


def test_a_name_whose_lookup_hangs_does_not_keep_a_client_from_the_other_servers(
    ensemble: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's lookup has no deadline: the client waited for it, however many other servers there were."""
    answers, system = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *args: Any, **settings: Any) -> Any:
        if str(host) == "slow.invalid":
            answers.wait(PATIENCE)
        return system(host, *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        url = ensemble.fresh(connect_timeout=4).replace("zookeeper://", "zookeeper://slow.invalid:2181,")
        with interlock.connect(url) as client, client.lock("x", timeout=2):
            pass
    finally:
        answers.set()


CALLS_UNDER_WAY: dict[str, Callable[[interlock.Client, interlock.Election], object]] = {
    "read": lambda client, _: client.register("r").read(),
    "write": lambda client, _: client.register("r").update(lambda _: 2),
    "scan": lambda client, _: list(client.scan()),
    "locked": lambda client, _: client.lock("e").locked(),
    "inspect": lambda client, _: client.inspect("e"),
    "proclaim": lambda _, election: election.proclaim("again"),
}


@pytest.mark.parametrize("call", CALLS_UNDER_WAY)
def test_a_call_under_way_when_the_connection_is_cut_goes_on_with_the_next_one(
    ensemble: Servers, call: str
) -> None:
    """It failed at once, with most of its time left."""
    with Proxy(ensemble.ports[0]) as way:
        url = ensemble.fresh().replace(ensemble.hosts, f"127.0.0.1:{way.port}")
        with interlock.connect(url) as client:
            election = client.election("e")
            election.campaign("first")
            client.register("r").update(lambda _: 1)
            session_client, answered = session_client_of(client), list[object]()
            way.set("deaf")
            under_way = threading.Thread(target=lambda: answered.append(_outcome(call, client, election)))
            under_way.start()
            until(lambda: session_client._client._pending)
            way.set("cut")
            way.set("pass")
            under_way.join()
            assert not isinstance(answered[0], Exception), answered[0]
            leader = election.leader()
            assert leader is not None
            assert leader.value == ("again" if call == "proclaim" else "first")
            assert client.register("r").read().value == (2 if call == "write" else 1)


def _outcome(call: str, client: interlock.Client, election: interlock.Election) -> object:
    try:
        return CALLS_UNDER_WAY[call](client, election)
    except InterlockError as error:
        return error
