"""Attacks by a store that refuses everything: a wrong password, a key of another kind. Nobody may be told that a claim was left."""

from __future__ import annotations

import asyncio
import time

import pytest

from interlock import events
from interlock.errors import StoreUnavailable, StoreUnfit
from tests.attacks.stage import AsyncStage, Stage, eventually, raises

REFUSAL = StoreUnfit("it refuses this user name and password")


def told(found: list[events.Event]) -> list[str]:
    return [str(event) for event in found if event.level >= events.WARNING]


@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "election"])
def test_a_claim_that_was_refused_is_not_reported_as_left_behind(kind: str) -> None:
    stage = Stage(ttl=0.3)
    stage.store.before.update({"claim": raises(REFUSAL), "release": raises(REFUSAL)})
    made = getattr(stage.client, kind)("x")
    acquire = made.campaign if kind == "election" else made.acquire
    for _ in range(3):
        with pytest.raises(StoreUnfit, match="user name and password"):
            acquire()
    assert stage.core.keeper.pending() == []
    stage.client.close()
    assert told(stage.events) == []


def test_nor_is_it_under_asyncio() -> None:
    async def main() -> None:
        stage = AsyncStage(ttl=0.3)
        for store in (stage.store, stage.plain):
            store.before.update({"claim": raises(REFUSAL), "release": raises(REFUSAL)})
        with pytest.raises(StoreUnfit, match="user name and password"):
            async with stage.client.lock("x"):
                pass
        await stage.client.close()
        assert told(stage.events) == []

    asyncio.run(main())


def test_one_that_may_stand_is_taken_back_as_soon_as_the_store_lets_it() -> None:
    """The answer to the first try was lost: the claim may have been made before the store began to refuse."""
    stage = Stage()
    answers = [StoreUnavailable("the answer was lost"), REFUSAL]

    def lose(*args: object, **options: object) -> None:
        if answers:
            raise answers.pop(0)

    stage.store.after["claim"] = lose
    stage.store.before["release"] = raises(REFUSAL)
    with pytest.raises(StoreUnfit):
        stage.client.lock("x").acquire()
    assert stage.client.inspect("x").holders
    assert stage.core.keeper.pending()
    del stage.store.before["release"]
    eventually(lambda: not stage.client.inspect("x").holders)
    stage.client.close()


def test_a_release_that_is_refused_is_tried_again_and_reported() -> None:
    """A full disk can be mended before the claim lapses; and if it is not, somebody must know."""
    stage = Stage(ttl=0.6)
    lease = stage.client.lock("x").acquire()
    assert lease
    stage.store.before["release"] = raises(REFUSAL)
    with pytest.raises(StoreUnfit):
        lease.release()
    eventually(lambda: any("could not be taken back" in line for line in told(stage.events)))
    stage.client.close()


def test_what_was_made_though_it_was_refused_is_taken_back_if_the_store_lets_it() -> None:
    stage = Stage()
    stage.store.after["claim"] = raises(REFUSAL)
    began = time.monotonic()
    with pytest.raises(StoreUnfit):
        stage.client.lock("x").acquire()
    assert stage.client.inspect("x").standings == (), f"after {time.monotonic() - began} s"
    stage.client.close()
    assert told(stage.events) == []
