"""A crowd on one name, the same for every server: nobody is forgotten, and nobody is let in before all are counted.

What a call costs beside a crowd is counted in the tests of each server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.server_store import ServerStore
from interlock.model import EVERYTHING, Busy, Claim, Granted, Renewal, Renewed
from interlock.store import Store
from interlock.testing.lag import stretched
from interlock.urls import open_store
from tests.patience import PATIENCE, until

Execute = Callable[[str], Any]
"""Runs a statement as an operator does; {claim} in it is the table of claims."""

SLICE = 64


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url, Threads(), asynchronous=False)
    try:
        yield store
    finally:
        drive(store.close())


def check_the_dead_ahead(url: str) -> None:
    """A holder and waiters that nobody renews, as those of a process that was killed, are passed over."""
    ttl = stretched(1.0)
    with opened(url) as dead, interlock.connect(url, ttl=ttl) as client:
        for number in range(5):
            drive(dead.claim(Claim("x", f"dead {number}", ttl, place_ttl=ttl)))
        lease = client.lock("x").acquire(timeout=PATIENCE)
        assert lease is not None
        lease.release()


def check_a_lost_ring(url: str, execute: Execute) -> None:
    """A waiter that is let in, and whose ring never arrives, hears of it when its place is renewed."""
    with (
        opened(url) as holder,
        interlock.connect(url, ttl=stretched(1.5)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        assert isinstance(drive(holder.claim(Claim("x", "holder", 60.0))), Granted)
        waiting = pool.submit(client.lock("x").acquire, timeout=PATIENCE)
        until(lambda: execute("select count(*) from {claim} where state = 0")[0][0] == 1)
        execute("delete from {claim} where state = 1")
        execute("update {claim} set state = 1")
        lease = waiting.result(PATIENCE)
        assert lease is not None
        lease.release()


def check_slices(url: str, execute: Execute) -> None:
    """Readers are let in so many at a time, and the next one of them asks for the rest."""
    count = 3 * SLICE
    with opened(url) as store:

        def claim(id: str, permits: int) -> Any:
            return drive(store.claim(Claim("x", id, 60.0, permits, EVERYTHING, place_ttl=60.0)))

        def states(number: int) -> list[int]:
            found = execute("select state, rung from {claim} where state < 2 order by token")
            assert len(found) == number
            return [10 * state + bool(rung) for state, rung in found]

        assert isinstance(claim("writer", EVERYTHING), Granted)
        for number in range(count):
            assert isinstance(claim(f"reader {number}", 1), Busy)
        assert drive(store.release("x", "writer"))
        assert states(count) == [11] * SLICE + [1] + [0] * (count - SLICE - 1)
        assert isinstance(claim(f"reader {SLICE}", 1), Granted)
        assert states(count) == [11] * SLICE + [10] + [11] * SLICE + [1] + [0] * (count - 2 * SLICE - 2)
        for number in range(2 * SLICE):  # those who leave meanwhile let nobody in twice, and forget nobody
            assert drive(store.release("x", f"reader {number}"))
        assert isinstance(claim(f"reader {2 * SLICE + 1}", 1), Granted)
        assert states(SLICE) == [11, 10] + [11] * (SLICE - 2)


TOKEN = -1  # stands for the token of the claim
CHANGES = {
    "nothing": ("select 1", None, None),
    "a holder is late": ("update {claim} set lapses_at = lapses_at - 45 where id = 'a'", 0, None),
    "a holder lapses after the clock was set back": (
        "update {claim} set lapses_at = lapses_at + 1000 where id = 'a'",
        0,
        None,
    ),
    "a holder has gone unseen": ("delete from {claim} where id = 'a'", 0, None),
    "the first waiter is rung": ("update {claim} set rung = not rung where id = 'first'", 0, None),
    "the first waiter is in": ("update {claim} set state = 1 where id = 'first'", TOKEN, None),
    "the first waiter is late": ("update {claim} set lapses_at = lapses_at - 45 where id = 'first'", None, 0),
    "the first waiter lapses after the clock was set back": (
        "update {claim} set lapses_at = lapses_at + 1000 where id = 'first'",
        None,
        0,
    ),
    "the first waiter has gone unseen": ("delete from {claim} where id = 'first'", None, None),
}
"""What happens in a semaphore with two holders and two waiters, and what the renewals of these tell them."""


def check_renewals(url: str, execute: Execute, change: str) -> None:
    """The renewal of a place tells its waiter what it must know, and nothing else."""
    statement, *expected = CHANGES[change]
    with full_semaphore(url) as store:
        tokens = [store._token(id) for id in ("first", "second")]
        execute(statement)
        for id in ("second", "first"):  # the place behind comes first: a renewal of the other mends its row
            drive(store.renew([Renewal("x", id, 60.0, waiting=True)]))
        told = [store._listener.take_token(id) for id in ("first", "second")]
        assert told == [token if one == TOKEN else one for token, one in zip(tokens, expected, strict=True)]


@contextmanager
def full_semaphore(url: str) -> Iterator[ServerStore]:
    """A store with a semaphore of two: `a` and `b` hold it, `first` and `second` wait for it."""
    with opened(url) as store:
        assert isinstance(store, ServerStore)
        store._sweep.writes, store._sweep.due_at = -1000, float("inf")  # it mends rows, too
        for id in ("a", "b", "first", "second"):
            drive(store.claim(Claim("x", id, 60.0, 1, 2, place_ttl=60.0)))
        yield store


def check_a_release_beside_the_dead(url: str, execute: Execute) -> None:
    """A holder that has lapsed unseen makes room together with the one that leaves."""
    with full_semaphore(url) as store:
        execute("update {claim} set lapses_at = 1 where id = 'a'")
        assert drive(store.release("x", "b"))
        assert (
            execute("select count(*) from {claim} where state = 1 and id in ('first', 'second')")[0][0] == 2
        )


def check_wrong_tokens(url: str) -> None:
    """A token that is not, or no longer, that of the claim costs a search, and nothing else."""
    with full_semaphore(url) as store:
        places = store._state.own_claims.places
        places["a"], places["b"] = places["b"], places["a"]
        places["second"] = (0, 17)
        asked = [Renewal("x", id, 60.0, waiting=len(id) > 1) for id in ("a", "b", "first", "second")]
        assert drive(store.renew(asked)) == [Renewed(60.0)] * 4
        assert drive(store.release("x", "a"))
        assert [one.id for one in drive(store.inspect("x")).standings] == ["b", "first", "second"]
        assert drive(store.release("x", "second"))
        assert [one.id for one in drive(store.inspect("x")).standings] == ["b", "first"]
