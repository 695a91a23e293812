"""What a quorum does not keep is refused when it is made; whatever clients it is given as, it keeps the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.backends.redlock.store import RedlockStore
from interlock.cli import quorum_report
from interlock.errors import InvalidURL, StoreUnfit, Unsupported
from interlock.model import EVERYTHING, Claim, Granted, Renewal, Renewed
from interlock.testing.servers.redis import running
from interlock.testing.servers.redlock import quorum, say, steady
from tests.redlock.colours import COLOURS, holders, holders_async, patiently, run, started, until

redis: Any = import_module("redis")  # by name: beside tests/redis a type checker takes that for it
sleepless: Any = import_module("redis.asyncio")

REFUSED: dict[str, Callable[[Any], object]] = {
    "event": lambda client: client.event("x"),
    "latch": lambda client: client.latch("x", 2),
    "barrier": lambda client: client.barrier("x", 2),
    "register": lambda client: client.register("x"),
    "guard": lambda client: client.guard("x"),
    "semaphore": lambda client: client.semaphore("x", 2),
    "bounded semaphore": lambda client: client.bounded_semaphore("x", 2),
}


@COLOURS
@pytest.mark.parametrize("kind", REFUSED)
def test_what_majorities_cannot_keep_is_refused_before_anybody_is_asked(colour: str, kind: str) -> None:
    connect: Any = interlock.connect if colour == "sync" else aio.connect
    client = connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")  # nobody is there
    with pytest.raises(Unsupported) as refusal:
        REFUSED[kind](client)
    said = str(refusal.value)
    assert said.startswith("redlock keeps no ")
    assert "majorities settle" in said
    assert "\n" not in said


@COLOURS
def test_a_condition_is_kept(colour: str) -> None:
    """Its waiters are claims that share, and two of those never conflict: a majority can tell."""
    url, woken = steady(3).url(f"{uuid4().hex}:"), list[bool]()
    if colour == "sync":
        with interlock.connect(url) as client, client.condition("x") as lease:
            assert lease.token > 0
            woken.append(client.condition("y", client.rlock("x")).wait(0.05))
    else:

        async def main() -> None:
            async with aio.connect(url) as client, client.condition("x") as lease:
                assert lease.token > 0
                woken.append(await client.condition("y", client.rlock("x")).wait(0.05))

        asyncio.run(main())
    assert woken == [False]  # nobody notified it


# ---- clients ----------------------------------------------------------------------------


def blocking(port: int, **settings: Any) -> Any:
    return redis.Redis(host="127.0.0.1", port=port, **settings)


def awaited(port: int, **settings: Any) -> Any:
    return sleepless.Redis(host="127.0.0.1", port=port, **settings)


MIXTURES: dict[str, Callable[[list[int]], list[Any]]] = {
    "that decode": lambda ports: [blocking(port, decode_responses=True) for port in ports],
    "of asyncio that decode": lambda ports: [awaited(port, decode_responses=True) for port in ports],
    "of both colours": lambda ports: [blocking(ports[0]), awaited(ports[1]), blocking(ports[2])],
    "and URLs, some of which decode": lambda ports: [
        awaited(ports[0], decode_responses=True),
        f"redis://127.0.0.1:{ports[1]}/0",
        blocking(ports[2], decode_responses=True, encoding="latin-1"),
    ],
    "that speak the third protocol": lambda ports: [blocking(port, protocol=3) for port in ports],
}


@COLOURS
@pytest.mark.parametrize("mixture", MIXTURES)
def test_clients_of_any_kind_name_a_quorum_to_either_face(colour: str, mixture: str) -> None:
    given, name = MIXTURES[mixture]([server.port for server in steady(3).all]), f"né {uuid4().hex}"

    async def main() -> None:
        async with aio.connect(given) as client, client.lock(name) as lease:
            await lease.renew()
            assert await holders_async(client, name) == [lease.token]
            assert [name] in [[found async for found in client.scan(name)] for _ in range(5)]
            assert await client.lock(name).acquire(blocking=False) is None

    if colour == "async":
        asyncio.run(main())
    else:
        with interlock.connect(given) as client, client.lock(name) as lease:
            lease.renew()
            assert holders(client, name) == [lease.token]
            assert [name] in [list(client.scan(name)) for _ in range(5)]
            assert client.lock(name).acquire(blocking=False) is None
    for node in given:
        if isinstance(node, redis.Redis):
            node.close()


@COLOURS
def test_a_client_that_follows_a_master_is_no_node(colour: str) -> None:
    connect: Any = interlock.connect if colour == "sync" else aio.connect
    for module in ("redis.sentinel", "redis.asyncio.sentinel"):
        manager: Any = import_module(module).Sentinel([("127.0.0.1", 1)])
        with pytest.raises(
            Unsupported, match="moves to another after a failover; give connect a client of each server"
        ):
            connect([manager.master_for("mymaster"), "redis://b", "redis://c"])


@COLOURS
def test_two_databases_of_one_server_are_not_two_nodes(colour: str) -> None:
    connect: Any = interlock.connect if colour == "sync" else aio.connect
    port = steady(3)[0].port
    with pytest.raises(InvalidURL, match="is named twice: each node of a quorum must be a server of its own"):
        connect([blocking(port), awaited(port, db=1), "redis://c"])


@COLOURS
def test_a_server_that_has_two_names_is_one_node(colour: str) -> None:
    servers, prefix = steady(3), f"{uuid4().hex}:"
    with interlock.connect(servers.url(prefix)) as client, client.lock("first"):
        pass  # all three vote
    hosts = [f"127.0.0.1:{servers[0].port}", f"localhost:{servers[0].port}", f"127.0.0.1:{servers[1].port}"]

    async def main(store: RedlockStore) -> None:
        assert isinstance(await store.claim(Claim("x", "a", 5.0), 5.0), Granted)  # two servers are a majority
        states = await store.status()
        twice = [quorum_report.word(state, states) for state in states if not state.reachable]
        assert len(twice) == 1
        assert twice[0].startswith("is the same server as ")
        await store.release("x", "a", 0.0, 5.0)

    run(colour, f"redlock://{','.join(hosts)}/0?prefix={prefix}", main)


@COLOURS
def test_a_server_that_has_three_names_is_no_quorum(colour: str) -> None:
    with running() as server:
        given = [
            f"redis://127.0.0.1:{server.port}",
            f"redis://localhost:{server.port}",
            f"unix://{server.folder}/socket",
        ]

        async def main() -> None:
            async with aio.connect(given) as client:
                await client.lock("x").acquire(timeout=1)

        with pytest.raises(
            StoreUnfit, match=r"is the same server as .*; each node of a quorum must be a server of its own"
        ):
            if colour == "async":
                asyncio.run(main())
            else:
                with interlock.connect(given) as client:
                    client.lock("x").acquire(timeout=1)


@COLOURS
def test_servers_that_change_addresses_are_used_again(colour: str, tmp_path: Path) -> None:
    with quorum(3) as servers:
        paths = [tmp_path / name for name in "abc"]
        for path, server in zip(paths, servers.all, strict=True):
            path.symlink_to(f"{server.folder}/socket")

        def swap() -> None:
            for path, server in zip(paths, (servers[1], servers[0]), strict=False):
                path.unlink()
                path.symlink_to(f"{server.folder}/socket")
            servers[2].kill()  # both of the others are needed now
            for server in servers.all[:2]:
                say(server, "CLIENT", "KILL", "TYPE", "normal")

        async def main(store: RedlockStore) -> None:
            await started(store)
            swap()
            await started(store)

        run(colour, [f"unix://{path}" for path in paths], main)


@COLOURS
def test_a_server_that_took_the_place_of_others_does_not_renew_twice(colour: str, tmp_path: Path) -> None:
    """The connection to its old address goes on, and it is the only one that is left of three."""
    with quorum(3) as servers:
        paths = [tmp_path / name for name in "abc"]
        for path, server in zip(paths, servers.all, strict=True):
            path.symlink_to(f"{server.folder}/socket")

        async def main(store: RedlockStore) -> None:
            await started(store)
            assert isinstance(await patiently(store, partial(store.claim, Claim("x", "a", 60.0))), Granted)
            for server in servers.all[:2]:
                server.kill()
            for path in paths[:2]:
                path.unlink()
                path.symlink_to(f"{servers[2].folder}/socket")
            transport: Any = store._quorum.transport
            transport._packing._runs.clear()  # as if it had been met under one address after the other
            for _ in range(5):
                await store._recovery.run_once(1.0)
                (answer,) = await store.renew([Renewal("x", "a", 60.0)])
                assert not isinstance(answer, Renewed)

        run(colour, [f"unix://{path}" for path in paths], main)


@COLOURS
def test_a_look_at_the_front_shows_so_many_and_those_that_came_first(colour: str) -> None:
    async def main(store: RedlockStore) -> None:
        tokens: list[int] = []
        for n in range(20):
            granted = await store.claim(Claim("x", f"id-{n}", 30.0, 1, EVERYTHING))
            assert isinstance(granted, Granted)
            tokens.append(granted.token)

        async def everywhere() -> bool:
            return len((await store.inspect("x")).standings) == 20

        await until(store, everywhere)
        for limit in (0, 1, 3, 100):
            found = await store.inspect("x", limit=limit)
            assert [standing.token for standing in found.standings] == tokens[:limit]
            assert found.capacity == EVERYTHING

    run(colour, steady().url(f"{uuid4().hex}:"), main)
