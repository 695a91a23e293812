"""Clients of valkey-py are accepted like those of redis-py: one server, a quorum, behind Sentinel, a Cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock.backends.redis.address import Address
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.redis import Server, running, started
from interlock.testing.servers.redlock import quorum
from interlock.testing.servers.sentinel import SERVICE, alone
from interlock.testing.servers.tls import SecureServer, certificate
from tests.house.source import SRC
from tests.redis.clients import held_and_shown, held_and_shown_async

MISSING = "valkey-py is not installed; it is one of the development dependencies: pip install valkey"
valkey: Any = pytest.importorskip("valkey", reason=MISSING)
sleepless: Any = pytest.importorskip("valkey.asyncio", reason=MISSING)


def serves(client: Any) -> None:
    """Locks are had through it on both faces, waiting included."""
    held_and_shown(interlock.connect(client))
    asyncio.run(held_and_shown_async(aio.connect(client)))


@pytest.mark.parametrize("decoded", [False, True])
def test_a_client_of_either_colour_serves_both_faces(server: Server, decoded: bool) -> None:
    with valkey.Valkey(port=server.port, db=3, decode_responses=decoded) as theirs:
        serves(theirs)
        assert theirs.ping()
        assert Address.of_client(theirs)._package == "valkey"  # who has this library may have no other
    serves(sleepless.Valkey(port=server.port, db=3, decode_responses=decoded))


def test_its_settings_are_used(server: Server) -> None:
    name = uuid4().hex
    with valkey.Valkey.from_url(f"valkey://127.0.0.1:{server.port}/5") as theirs:
        with interlock.connect(theirs) as client, client.lock(name):
            assert theirs.exists(name)
    with valkey.Valkey.from_url(f"unix://{server.folder}/socket") as theirs:
        serves(theirs)


def test_it_excludes_and_is_excluded_by_others(server: Server) -> None:
    name = uuid4().hex
    with valkey.Valkey(port=server.port) as theirs, redis.Redis(port=server.port) as others:
        with interlock.connect(theirs) as one, interlock.connect(others) as other:
            with one.lock(name):
                assert other.lock(name).acquire(blocking=False) is None
            with other.lock(name):
                assert one.lock(name).acquire(blocking=False) is None
            with theirs.lock(name, timeout=20):
                assert one.lock(name).acquire(blocking=False) is None


def test_tls_is_used_and_a_strange_certificate_is_named(tmp_path: Path) -> None:
    shown, other = certificate(tmp_path, "shown"), certificate(tmp_path, "other")
    with started(SecureServer(shown)) as server:
        with valkey.Valkey(port=server.secure, ssl=True, ssl_ca_certs=str(shown)) as theirs:
            serves(theirs)
        serves(sleepless.Valkey(port=server.secure, ssl=True, ssl_ca_certs=str(shown)))
        with valkey.Valkey(port=server.secure, ssl=True, ssl_ca_certs=str(other)) as stranger:
            for error in refusals(stranger):
                assert isinstance(error, StoreUnavailable)
                assert "its certificate is not trusted (self-signed certificate)" in str(error)


def test_a_certificate_of_ours_may_lie_in_one_file_with_its_key(tmp_path: Path) -> None:
    shown, both = certificate(tmp_path, "shown"), tmp_path / "both.pem"
    both.write_text(shown.read_text() + shown.with_suffix(".key").read_text())
    settings: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(shown), "ssl_certfile": str(both)}
    with started(SecureServer(shown, "--tls-auth-clients", "yes")) as server:
        for library in (valkey.Valkey, redis.Redis):
            with library(host="127.0.0.1", port=server.secure, **settings) as theirs:
                held_and_shown(interlock.connect(theirs))


def refusals(client: Any) -> list[Exception]:
    """What both faces say when a lock is asked for."""

    async def ask() -> None:
        async with aio.connect(client) as ours:
            await ours.lock("x").acquire(timeout=0.3)

    with pytest.raises(interlock.InterlockError) as blocking, interlock.connect(client) as ours:
        ours.lock("x").acquire(timeout=0.3)
    with pytest.raises(interlock.InterlockError) as awaited:
        asyncio.run(ask())
    return [blocking.value, awaited.value]


def test_a_wrong_password_a_dead_server_and_an_unknown_host_have_their_sentences() -> None:
    with running("--requirepass", "s3cret") as server:
        with valkey.Valkey(port=server.port, password="s3cret") as theirs:
            serves(theirs)
        for password, words in ((None, "wants a password"), ("wr0ng", "refuses this user name and password")):
            with valkey.Valkey(port=server.port, password=password) as theirs:
                for error in refusals(theirs):
                    assert isinstance(error, StoreUnfit), repr(error)
                    assert words in str(error)
    with valkey.Valkey(host="127.0.0.1", port=server.port) as theirs:
        for error in refusals(theirs):
            assert f"Redis at 127.0.0.1:{server.port}: Connection refused; is the server running" in str(
                error
            )
    with valkey.Valkey(host="no-such-host.invalid") as theirs:
        for error in refusals(theirs):
            assert "its host cannot be looked up" in str(error)


def test_clients_of_both_libraries_name_one_quorum() -> None:
    with quorum(3) as servers:
        ports, name = [server.port for server in servers.all], uuid4().hex
        nodes = [
            valkey.Valkey(port=ports[0], decode_responses=True),
            redis.Redis(port=ports[1]),
            sleepless.Valkey(port=ports[2]),
        ]
        with interlock.connect(nodes) as client, client.lock(name):

            async def main() -> None:
                async with aio.connect(nodes) as other:
                    assert await other.lock(name).acquire(blocking=False) is None
                    async with other.lock(f"{name}-2"):
                        pass

            asyncio.run(main())
        nodes[0].close()
        nodes[1].close()


def test_a_client_that_sentinel_made_follows_its_master(server: Server) -> None:
    with alone(server) as watcher:
        for colour in ("valkey.sentinel", "valkey.asyncio.sentinel"):
            manager: Any = import_module(colour).Sentinel([("127.0.0.1", watcher.port)])
            serves(manager.master_for(SERVICE))


def test_a_client_of_a_cluster_finds_its_nodes() -> None:
    with clusters.alone() as node:
        with valkey.ValkeyCluster("127.0.0.1", node.port) as theirs:
            assert Address.of_cluster(theirs)._package == "valkey"
            serves(theirs)

        async def main() -> None:
            async with sleepless.ValkeyCluster("127.0.0.1", node.port) as theirs:
                await held_and_shown_async(aio.connect(theirs))
                held_and_shown(interlock.connect(theirs))

        asyncio.run(main())


ALONE = """
import asyncio, sys
sys.modules["redis"] = None  # as if it were not installed
if sys.argv[2] == "neither":
    sys.modules["valkey"] = None
import interlock
from interlock import aio

async def main():
    async with aio.connect(sys.argv[1]) as client, client.lock("x"):
        print("async")

try:
    with interlock.connect(sys.argv[1]) as client, client.lock("x"):
        print("sync")
    asyncio.run(main())
except interlock.StoreUnfit as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["valkey", "neither"])
def test_a_url_is_enough_where_only_valkey_py_is_installed(server: Server, kind: str) -> None:
    path = [str(SRC), str(Path(valkey.__file__).parents[1])]
    told = subprocess.run(
        [sys.executable, "-c", ALONE, server.url(f"{uuid4().hex}:"), kind],
        env={"PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if kind == "valkey":
        assert (told.stdout.split(), told.stderr) == (["sync", "async"], "")
    else:
        assert "install it: pip install " in told.stdout
        assert "'redis>=" in told.stdout
