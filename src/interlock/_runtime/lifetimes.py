"""The ends of a process, and its forks: every client hears of them here.

At exit what is still held is given back, within a bound: nobody should wait out a ttl because a program
ended in good order. After a fork the child holds nothing and gets its own ids and connections.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import suppress

from interlock._core import drive as driving
from interlock._core.client import CLOSE_TIMEOUT_S, Client
from interlock._core.drive import drive
from interlock._core.place import QueuePlace
from interlock._core.states import State
from interlock._runtime import identity
from interlock._support import clock
from interlock.model import Claim
from interlock.store import IO_TIMEOUT

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def follow(client: Client) -> None:
    """Tell this client of forks and of the end of the process from now on."""
    _clients.add(client)


def _after_fork() -> None:
    identity.renew_identity()
    for client in list(_clients):
        client.after_fork()


def give_back_everything(timeout: float = CLOSE_TIMEOUT_S) -> None:
    """Give back all leases and places of all clients from a plain thread, within `timeout` seconds.

    An event loop may be gone or stuck by now, so this goes through each store's blocking side.
    """
    until = clock.now() + timeout
    clients = list(_clients)
    for client in clients:
        # Or a place that is given back is taken anew, and others wait behind a process that is gone.
        client.drain()
    for client in clients:
        with suppress(Exception):  # its store is away: the leases that are left lapse by themselves
            _give_back(client, until)


def _give_back(client: Client, until: float) -> None:
    # The keeper's connection: the callers' one may be in the hands of the thread that the signal interrupted.
    store = client.store.blocking().for_keeper()
    # Before the leases: an heir may get its own meanwhile.
    standing: list[Claim | QueuePlace] = [*client.cohorts.underway(client)]
    for lease in list(client.leases):
        if lease._let_go() in (State.HELD, State.DOUBTFUL):
            lease._withdraw()
            drive(store.release(lease.resource, lease.id, lease._linger(), _left(until)))
    # Somebody waits: nobody should wait behind a process that is gone.
    standing += [kept for kept in client.keeper.kept() if isinstance(kept, QueuePlace)]
    for claim in standing:
        drive(store.release(claim.resource, claim.id, 0.0, _left(until)))
    for pending in client.keeper.pending():
        linger = pending.linger(client.runtime.now())
        drive(store.release(pending.resource, pending.id, linger, _left(until)))


def call_at_rest(callback: Callable[[], object] | None) -> None:
    """Have `callback` called whenever a blocking call is over, on its thread; None: no longer."""
    driving.at_rest = callback


def _left(until: float) -> float:
    left = until - clock.now()
    if left <= 0:
        raise TimeoutError
    return min(left, IO_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(give_back_everything)
