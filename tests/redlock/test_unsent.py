"""A claim that failed and stands nowhere: nobody is frightened with what it might have left behind."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from interlock.backends.redlock.store import RedlockStore
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import quorum, say
from tests.cli.program import Program
from tests.redlock.colours import COLOURS, run


def test_a_command_on_a_dead_majority_says_one_line(tmp_path: Path) -> None:
    with quorum(3) as servers:
        program = Program(tmp_path)
        program.url = servers.url()
        assert program.call("run", "x", "--", "true").returncode == 0
        for node in (0, 1):
            servers[node].kill()
        told = program.call("run", "x", "--", "true")
        assert told.returncode == 69
        (line,) = told.stderr.splitlines()
        assert "x: a claim needs 2 of 3 nodes" in line
        assert say(servers[2], "EXISTS", "x") == 0


@COLOURS
def test_a_claim_that_nobody_can_have_says_so(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            for node in (0, 1):
                servers[node].kill()
            with pytest.raises(Unreached):
                await store.claim(Claim("x", uuid4().hex, 30.0))
            assert say(servers[2], "EXISTS", "x") == 0

        run(colour, servers.url(), main)


@COLOURS
def test_a_claim_that_a_hung_node_may_have_does_not(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            claim = Claim("w", uuid4().hex, 30.0)
            assert isinstance(await store.claim(claim), Granted)
            servers[0].kill()
            with servers[1].frozen(), pytest.raises(StoreUnavailable) as told:
                await store.claim(Claim("x", uuid4().hex, 30.0))
            assert not isinstance(told.value, Unreached)

        run(colour, servers.url(), main)
