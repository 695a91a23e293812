"""Noticing at once that a lease was taken away; the keeper would notice at the next renewal.

Whom an operator lets in by an eviction is in at once. So each second its victim goes on is a second with two
at work, and a third of the ttl would be ten of them.
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
    """Watch from a thread of its own until the lease has ended or `over` is set; the lease tells who must know."""
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
            pass  # the store is away, or the client closed: the keeper deals with the one, `over` tells the other
        over.wait(AT_MOST_EVERY)
