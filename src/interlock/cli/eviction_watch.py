"""Notices at once that a lease was evicted; the keeper would notice at the next renewal.

An eviction lets the next claim in at once. Until the victim stops, two are at work; with the default ttl the
next renewal may be ten seconds away.
"""

from __future__ import annotations

import threading

from interlock._core.client import Client
from interlock._core.drive import drive
from interlock._core.states import FINAL
from interlock.blocking import Lease
from interlock.errors import InterlockError, NotHeld

LOOK_AGAIN = 10.0  # seconds one wait lasts
AT_MOST_EVERY = 0.2  # seconds between questions, whatever wakes us


def watch(client: Client, lease: Lease, over: threading.Event) -> None:
    """Watch from a thread of its own until the lease has ended or `over` is set.

    A loss is reported by the lease itself.
    """
    threading.Thread(
        target=_watch, args=(client, lease, over), name="interlock-eviction", daemon=True
    ).start()


def _watch(client: Client, lease: Lease, over: threading.Event) -> None:
    while not over.is_set() and lease.state not in FINAL:
        asked = client.runtime.now()
        try:
            drive(client.store.wait(lease._claim, None, LOOK_AGAIN))
            if client.runtime.now() - asked < LOOK_AGAIN and not over.is_set():
                lease.renew()
        except NotHeld:
            return
        except InterlockError:
            # The store is away, or the client closed: the keeper deals with the one, `over` tells the other.
            pass
        over.wait(AT_MOST_EVERY)
