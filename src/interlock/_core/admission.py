"""Who may enter, and whom the others watch. Pure; every store agrees with it.

    a claim is admitted  <=>  its permits, and those of all live claims ahead of it,
                              fit into the capacity

That is the whole rule. With capacity 1 it is a mutex; with n, a semaphore; with EVERYTHING, where
a reader takes 1 and a writer takes EVERYTHING, a read-write lock in which no writer starves. The
sum only grows along the queue, so grants happen in queue order: no herd, nobody starves, and the
place in the queue can serve as the fencing token.
"""

from __future__ import annotations

from collections.abc import Sequence


def admitted(permits: Sequence[int], capacity: int) -> int:
    """How many claims, counted from the front, are in."""
    total = 0
    for place, wanted in enumerate(permits):
        total += wanted
        if total > capacity:
            return place
    return len(permits)


def to_watch(permits: Sequence[int], place: int, capacity: int) -> range:
    """The places a waiter at `place` must watch: no herd, and no wake-up missed.

    A claim ahead that cannot share with us must leave before anything can change for us, so the
    nearest such claim is enough: the one just ahead for a mutex or a writer, the nearest writer for
    a reader. When all could share and it is the count that is full, the first waiter watches every
    holder, and those behind it watch the claim just ahead, for leaving and for being let in:
    either may make them the first.
    """
    for ahead in range(place - 1, -1, -1):
        if permits[ahead] + permits[place] > capacity:
            return range(ahead, ahead + 1)
    holders = admitted(permits, capacity)
    return range(holders) if place == holders else range(place - 1, place)


def retry_after(permits: Sequence[int], lapses_in: Sequence[float], place: int, capacity: int) -> float:
    """Seconds until something a waiter at `place` watches lapses by itself."""
    return min((lapses_in[i] for i in to_watch(permits, place, capacity)), default=0.0)


def let_in_matters(permits: Sequence[int], place: int, capacity: int) -> bool:
    """Whether a waiter at `place` must also learn that the claim it watches was let in, not only that it
    left.

    It must if the count is full and it stands directly behind the first waiter: when the first waiter is let
    in, it becomes the first itself and must watch every holder. On some stores nothing that can be watched
    changes when a claim is let in; such a store has to make a change for this purpose.
    """
    shares = all(ahead + permits[place] <= capacity for ahead in permits[:place])
    return shares and place > admitted(permits, capacity)


def asks_at_renewal(
    permits: Sequence[int],
    lapses_in: Sequence[float],
    ttls: Sequence[float],
    place: int,
    capacity: int,
    place_ttl: float,
    let_in: int,
) -> bool:
    """Whether the renewal of the place of a waiter must have it ask the store: see `Traits.renewals_wake`.

    `ttls` says for how long each claim was last renewed, and `let_in` how many from the front know that they
    are in.

    A waiter looks at the claim just ahead. If that one is about to lapse, the waiter asks, and learns when.
    The first waiter looks at all holders, and asks also if it fits. That is enough: every change ahead is
    made by a call, which rings whom it concerns, or it is a lapse. However many have died ahead of a waiter,
    the one just ahead of it is among them, or lives and looks itself.

    About to lapse means that less than half of its time is left: a claim is renewed after a third of its ttl.
    If our place's ttl is shorter, half of that counts: we look again after a third of it, in time.
    """
    watched = range(place) if place <= let_in else range(place - 1, place)
    late = any(lapses_in[ahead] <= min(ttls[ahead], place_ttl) / 2 for ahead in watched)
    return late or (place <= let_in and sum(permits[: place + 1]) <= capacity)
