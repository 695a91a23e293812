"""Nodes far away: every lock can be had, also the first, and nobody is called away for the distance."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from tests.redlock.colours import COLOURS
from tests.redlock.far import far_away
from tests.redlock.servers import steady

TRIPS = pytest.mark.parametrize("trip", [0.025, 0.08, 0.09, 0.15])


def used() -> str:
    """The prefix of a quorum that has been used before."""
    prefix = f"{uuid4().hex}:"
    with interlock.connect(steady().url(prefix)) as client, client.lock("x"):
        return prefix


def acquired(colour: str, url: str, blocking: bool = True) -> bool:
    """Whether a client that knows nobody yet gets a lock at its first try."""

    async def main() -> bool:
        async with aio.connect(url) as client:
            if not blocking:
                return bool(await client.lock("x").acquire(blocking=False))
            async with client.lock("x", timeout=3.0):
                return True

    if colour == "async":
        return asyncio.run(main())
    with interlock.connect(url) as client:
        if not blocking:
            return bool(client.lock("x").acquire(blocking=False))
        with client.lock("x", timeout=3.0):
            return True


@TRIPS
@COLOURS
def test_the_first_lock_is_taken_from_far_away(colour: str, trip: float) -> None:
    with far_away(steady().all, trip) as far:
        assert acquired(colour, far.url(used()))


@COLOURS
def test_the_first_lock_of_new_nodes_is_taken_from_far_away(colour: str) -> None:
    with far_away(steady().all, 0.09) as far:
        assert acquired(colour, far.url(f"{uuid4().hex}:"))


@TRIPS
@COLOURS
def test_a_first_lock_that_nobody_waits_for_is_taken_from_far_away(colour: str, trip: float) -> None:
    with far_away(steady().all, trip) as far:
        assert acquired(colour, far.url(used()), blocking=False)
