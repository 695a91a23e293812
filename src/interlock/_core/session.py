"""The session of a client, on stores where it carries all claims of the client: etcd and ZooKeeper.

On the other stores each claim lapses by itself, and `Client.session` is None. Where there is a session
(`Traits.lapses`), it changes four things:

- One renewal carries all claims. The store renews the session with whatever it renews, and no claim lapses
  while the session lives; so a waiter has no reason to ask again in order to prolong its place
  (`Waiter._longest_pause`), and nobody else can renew a claim for us (`condition.py`).
- One lapse loses all claims. The store tells of it, and each lease is lost at once (`Session.lose`).
- How long a session lives is for the servers to say. Leases whose ttl nobody has chosen are cut to that
  (`Session.cut`). If the servers turn out to keep it for less than they had answered, no lease counts on more
  from then on (`Session.shorten`, `adapt`, `bound`).
- Nothing removes a claim while the session lives, so we must. Our own clock, the end of the owner or
  `max_hold` may have ended a lease, and a waiter may have ended without leaving its queue: such claims are
  released (`Session.carries_on`, `left_behind`). A release that got no answer is repeated until it has one,
  and not only for a ttl (`removal.release_later`).

The reference for such stores is `interlock.testing.sessions`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from weakref import ref

from interlock._core import timing
from interlock._core.removal import FOR_EVER, PendingRelease
from interlock._support.record import record, replaced

if TYPE_CHECKING:
    from interlock._core.client import Client
    from interlock._core.keeper import Renewable
    from interlock._core.lease import Lease
    from interlock.model import Claim, Traits


@record
class Shortened:
    """The servers were found to keep the session for less than they had answered."""

    found: float  # when; what the store was asked before knows nothing of it
    since: float  # from when its time counts
    seconds: float


class Session:
    """What the session of one client means for its claims."""

    def __init__(self, client: Client) -> None:
        self._client = ref(client)  # weakly: a client that nobody has any more, and holds nothing, must go
        self._shortened: Shortened | None = None  # the last that was found

    # ---- one lapse loses all ---------------------------------------------------------

    def lose(self, ids: Collection[str] | None) -> None:
        """Conclude that these claims are gone, or all of them: the session has ended. For any thread."""
        client = self._client()
        if client is None:
            return
        for kept in client.keeper.kept():
            if ids is None or kept.id in ids:
                kept._on_session_lost()
        client.keeper.forget_releases(ids)

    # ---- how long it lives ---------------------------------------------------------------

    def cut(self, claim: Claim, traits: Traits) -> Claim:
        """Cut a ttl that nobody has chosen to that of the session, now that the servers have said how long
        it lives.
        """
        return replaced(claim, ttl=traits.max_ttl) if claim.ttl > traits.max_ttl else claim

    def shorten(self, since: float, seconds: float) -> None:
        """Have no lease count on more than so many seconds from `since`: then the session ends. For any
        thread.
        """
        client = self._client()
        if client is None:
            return
        # First: a lease that is registered from here on looks there (`adapt`).
        self._shortened = Shortened(client.runtime.now(), since, seconds)
        with client.mutex:
            for lease in (*client.cohorts.lenders(), *client.leases):
                lease._on_session_shortened(since, seconds)
        client.keeper.deadlines_moved()

    def adapt(self, lease: Lease) -> None:
        """Shorten a lease that was just registered, if it was granted before the servers' word was known."""
        shortened = self._shortened
        if shortened is not None and lease._counts_from < shortened.found:
            lease._on_session_shortened(shortened.since, shortened.seconds)
            lease._holding.client.keeper.keep(lease)

    def bound(self, asked: float, until: float) -> float:
        """The deadline that a renewal gives: an answer to an earlier question (`asked`) may promise too
        much.
        """
        shortened = self._shortened
        if shortened is not None and asked < shortened.found:
            return min(until, timing.deadline(shortened.since, shortened.seconds))
        return until

    # ---- what nothing else removes -----------------------------------------------------

    def carries_on(self, lost: Lease) -> bool:
        """Whether the claim of this lost lease may still stand: we ended the lease, and not the store."""
        return lost._cause not in ("refused", "evicted", "session")

    def left_behind(self, kept: Renewable, now: float) -> PendingRelease | None:
        """The release that must follow if whatever the keeper has just dropped left its claim standing."""
        if not kept._left_behind():
            return None
        return PendingRelease(kept.resource, kept.id, 0.0, due=now, until=FOR_EVER)
