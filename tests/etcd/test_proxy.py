"""etcd's own proxy for gRPC is refused: it answers some calls by itself, so nobody could trust what it says."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnfit
from interlock.testing.servers.etcd import EtcdCluster
from interlock.testing.servers.process import free_port, start_program
from tests.patience import until

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module", params=["usual", "unadvertised"])
def proxy(fragile: EtcdCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a proxy."""
    program = os.environ.get("ETCD_PROGRAM") or shutil.which("etcd")
    assert program
    port = free_port()
    more = ["--advertise-client-url", ""] if request.param == "unadvertised" else []
    with open(f"{fragile.folder}/proxy.log", "ab") as log:
        process = start_program(
            [
                *(program, "grpc-proxy", "start", "--endpoints", fragile.hosts),
                *("--listen-addr", f"127.0.0.1:{port}", *more),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: b"listening" in _read(f"{fragile.folder}/proxy.log"))
        yield f"etcd://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_the_proxy_is_refused_in_one_sentence(proxy: str) -> None:
    """Locks were granted, and every lease lapsed after its ttl."""
    with interlock.connect(proxy, ttl=20) as client:
        for _ in range(2):
            with pytest.raises(StoreUnfit, match=r"grpc-proxy.*name the members"):
                client.lock("x").acquire(timeout=10)


def test_tasks_are_told_the_same(proxy: str) -> None:
    async def main() -> None:
        async with aio.connect(proxy, ttl=20) as client:
            with pytest.raises(StoreUnfit, match=r"grpc-proxy.*name the members"):
                await client.lock("x").acquire(timeout=10)

    asyncio.run(main())


def test_a_member_is_not_taken_for_a_proxy(fragile: EtcdCluster) -> None:
    for member in fragile.members:
        with interlock.connect(f"etcd://127.0.0.1:{member.port}") as client, client.lock("y", timeout=30):
            pass
