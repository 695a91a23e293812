"""A node whose clock jumps past a ttl, on real servers: the holder's majority is not given away with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from interlock.backends.redlock.store import RedlockStore
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, Granted, NoAnswer, Renewal, Renewed
from interlock.testing.servers.clock import clocked, set_offset
from interlock.testing.servers.redlock import Servers, say
from tests.redlock.colours import COLOURS, opened, run


class Shifted(Servers):
    """Servers whose wall clocks can be moved while they run."""

    def __init__(self, count: int, folder: Path) -> None:
        super().__init__(count)
        self._files = [folder / f"offset-{node}" for node in range(count)]

    def start(self) -> None:
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "CLOCKSHIM_FILE")}
        try:
            for server, file in zip(self.all, self._files, strict=True):
                os.environ.update(clocked({}, file, 0.0))
                server.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def jump(self, node: int, seconds: float) -> None:
        set_offset(self._files[node], seconds)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Shifted]:
    servers = Shifted(3, tmp_path)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@COLOURS
def test_a_clock_that_jumps_past_the_ttl_gives_nothing_to_who_has_seen_it_before(
    colour: str, servers: Shifted
) -> None:
    async def main(store: RedlockStore) -> None:
        other = opened(servers.url())
        mine, theirs = Claim("x", uuid4().hex, 20.0), Claim("x", uuid4().hex, 20.0)
        assert isinstance(await other.claim(Claim("y", uuid4().hex, 20.0)), Granted)
        assert isinstance(await store.claim(mine), Granted)
        say(servers[2], "DEL", "x")  # as if it had missed the claim
        servers.jump(1, 60.0)
        for _ in range(3):  # on node 1 the claim has lapsed; its vote would be the second of three
            try:
                answer = await other.claim(theirs)
            except StoreUnavailable:
                continue
            assert isinstance(answer, Busy)
        await other.close()

    run(colour, servers.url(), main)


@COLOURS
def test_a_renewal_does_not_count_a_node_whose_clock_jumped(colour: str, servers: Shifted) -> None:
    async def main(store: RedlockStore) -> None:
        held = Claim("x", uuid4().hex, 20.0)
        assert isinstance(await store.claim(held), Granted)
        servers.jump(0, -60.0)
        assert await store.renew([Renewal("x", held.id, 20.0)]) == [Renewed(20.0)]
        servers.jump(1, -60.0)
        (answer,) = await store.renew([Renewal("x", held.id, 20.0)])
        assert isinstance(answer, NoAnswer)
        assert "its clock jumped" in answer.why
        await store.release("x", held.id)

    run(colour, servers.url(), main)


def test_tokens_rise_over_clocks_that_jump_back(servers: Shifted) -> None:
    async def main(store: RedlockStore) -> None:
        tokens: list[int] = []
        for n in range(12):
            fresh = opened(servers.url())  # one that has not seen the clocks before
            held = Claim("x", uuid4().hex, 5.0)
            granted = await fresh.claim(held)
            assert isinstance(granted, Granted)
            tokens.append(granted.token)
            await fresh.release("x", held.id)
            await fresh.close()
            servers.jump(n % 3, -3600.0 * n)
        assert tokens == sorted(set(tokens))

    run("sync", servers.url(), main)
