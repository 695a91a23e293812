"""Bounds that storms found overstepped, step by step: of time on a frozen quorum, of tokens in a cohort."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.lab.storm.director import scene
from interlock.lab.storm.faults.fault import CONNECT_S, frozen
from interlock.lab.storm.faults.redis import each
from interlock.testing.lag import at_most
from tests.patience import PATIENCE

pytestmark = pytest.mark.chaos
LIMIT = 0.3


def refused_in_time(face: str, url: str) -> None:
    """An acquire that finds no majority ends soon after its timeout, and the time it may take to connect."""
    if face == "sync":
        with interlock.connect(url, ttl=1, listener=lambda event: None) as client:
            with at_most(LIMIT + CONNECT_S + 0.25 + 0.1), pytest.raises(StoreUnavailable):
                client.lock("x").acquire(timeout=LIMIT)
        return

    async def main() -> None:
        async with aio.connect(url, ttl=1, listener=lambda event: None) as client:
            with at_most(LIMIT + CONNECT_S + 0.25 + 0.1), pytest.raises(StoreUnavailable):
                await client.lock("x").acquire(timeout=LIMIT)

    asyncio.run(main())


@pytest.mark.parametrize("face", ["sync", "async"])
def test_an_acquire_on_a_quorum_without_a_majority_ends_in_its_time(face: str) -> None:
    with scene("redlock") as made:
        servers: Any = made.field
        with interlock.connect(servers.places()[0]) as client, client.lock("first"):
            pass  # five new nodes begin together
        with frozen(servers.servers[:3]):
            refused_in_time(face, servers.places()[0])


def test_who_began_after_a_grant_has_a_higher_token_also_when_it_inherits_a_forgotten_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "interlock._core.cohort.TURN_S", 2.0
    )  # a turn is short: here, long enough for four steps
    monkeypatch.setattr("interlock._core.attempt.TURN_S", 2.0)
    with scene("forgetful") as made:
        servers: Any = made.field
        url, heir = servers.places()[0], list[int]()

        def inherit(client: interlock.Client) -> None:
            if lease := client.lock("x").acquire(timeout=1.0):
                heir.append(lease.token)
                with suppress(LeaseLost):
                    lease.release()

        with interlock.connect(url, ttl=10) as one, interlock.connect(url, ttl=10) as other:
            lease = one.lock("x").acquire()
            assert lease
            each(servers.servers, "FLUSHALL")
            with other.lock("x", timeout=PATIENCE) as granted:
                thread = threading.Thread(target=inherit, args=(one,))
                thread.start()
                thread.join(0.1)  # it stands behind the one that holds, if that is how it is done
                with suppress(LeaseLost):
                    lease.release()
                thread.join()
                assert not heir or heir[0] > granted.token
