"""Removing a claim from the store: at once if the store answers, otherwise by the keeper, until it has
answered.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from interlock._core import timing
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit
from interlock.store import IO_TIMEOUT

if TYPE_CHECKING:
    from interlock._core.client import Client
    from interlock.model import Claim

FOR_EVER = float("inf")
FIRST_PAUSE_S = 0.5  # seconds until an unanswered release is tried again; doubled each time
MAX_PAUSE_S = 4.0


class Removal(Enum):
    """The result of an attempt to remove a claim."""

    DONE = "it stood, and we removed it"
    GONE = "it stood no more"
    PENDING = "the store did not answer: the keeper goes on asking"


DONE, GONE, PENDING = Removal


async def remove(
    client: Client,
    claim: Claim,
    linger: float = 0.0,
    until: float = FOR_EVER,
    failure: InterlockError | None = None,
    *,
    refused: bool = False,
) -> Removal:
    """Release a claim; from `until` on, wait for no more than one short request.

    `failure` is that of a first try which the caller has made itself. `refused` tells that the store has
    refused to make the claim; if it refuses this as well, because of a wrong password for example, then there
    is nothing to take back, and nobody is told that something was left. The claim is gone only when the
    store's *first* answer was that no such claim stands: after a lost reply that would be our own doing.
    `linger` counts from now, and not from the try that is answered.
    """
    free_from = client.runtime.now() + linger if linger else 0.0
    if linger and not client.store.traits.lingers:
        release_later(client, claim, 0.0, pause=linger)
        return DONE
    for tries in range(2):
        if failure is None:
            left = until - client.runtime.now()
            patience = IO_TIMEOUT if left >= IO_TIMEOUT else timing.patience(left)
            try:
                linger = left_of(free_from, client.runtime.now())
                stood = await client.store.release(claim.resource, claim.id, linger, patience)
                return DONE if stood or tries else GONE
            except (StoreUnavailable, StoreUnfit) as error:
                failure = error
        if isinstance(failure, StoreUnfit):
            if refused:
                return GONE
            # A full disk, for example: that can be mended before the claim lapses.
            release_later(client, claim, left_of(free_from, client.runtime.now()))
            raise failure
        if client.runtime.now() >= until:
            break
        failure = None
    release_later(client, claim, left_of(free_from, client.runtime.now()))
    return PENDING


def left_of(free_from: float, now: float) -> float:
    """The seconds for which a claim must stand on; 0.0 if it need not."""
    return max(0.0, free_from - now) if free_from else 0.0


def release_later(client: Client, claim: Claim, linger: float, pause: float = FIRST_PAUSE_S) -> None:
    """Have the keeper release a claim in `pause` seconds, and again until the store has answered."""
    now = client.runtime.now()
    due = now + pause
    free_from = now + linger if linger else 0.0
    # By then the claim has lapsed by itself; one that a session carries does not.
    until = due + claim.ttl if client.session is None else FOR_EVER
    client.keeper.release_later(PendingRelease(claim.resource, claim.id, free_from, due=due, until=until))


class PendingRelease:
    """A release that the store has not answered yet: its caller could not wait for it, so the keeper
    repeats it.
    """

    __slots__ = ("due", "free_from", "id", "resource", "tries", "until")

    def __init__(self, resource: str, id: str, free_from: float, *, due: float, until: float) -> None:
        self.resource = resource
        self.id = id
        self.free_from = (
            free_from  # the claim must keep others out until then, for `min_hold`; 0.0: it need not
        )
        self.due = due  # the next try
        self.until = until  # by then the claim has lapsed by itself
        self.tries = 0

    def linger(self, now: float) -> float:
        """The seconds for which the claim must stand on, as of this try: an outage does not prolong them."""
        return left_of(self.free_from, now)

    def put_off(self, now: float) -> bool:
        """Plan the next try; False if the claim will have lapsed by then."""
        self.due = now + min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**self.tries)
        self.tries += 1
        return self.due < self.until
