"""Notices at once that a lease was evicted; the keeper would notice at the next renewal.

An eviction lets the next claim in at once. Until the victim stops, two are at work; with the default ttl the
next renewal may be ten seconds away.
"""

from __future__ import annotations

import threading
import time

from interlock.blocking import Lease
from interlock.errors import ClientClosed, InterlockError

RETRY_PAUSE_S = 1.0  # seconds after which a store that cannot be used is asked again


def watch(lease: Lease) -> None:
    """Watch from a thread of its own until the lease has ended.

    A loss is reported by the lease itself.
    """
    threading.Thread(target=_watch, args=(lease,), name="interlock-eviction", daemon=True).start()


def _watch(lease: Lease) -> None:
    ended = False
    while not ended:
        try:
            ended = lease.wait_for_loss()
        except ClientClosed:
            return
        except InterlockError:  # the keeper deals with it
            time.sleep(RETRY_PAUSE_S)
