"""A queue as one read shows it: its front and its end. Pure.

A queue can be long. Whether a claim is admitted depends on those ahead of it, and on no more of them than the
capacity has permits, since each takes at least one. So a read has that many from the front, and the last
two.
"""

from __future__ import annotations

from functools import lru_cache

from interlock._core.admission import admitted, to_watch
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import DOWNWARDS, UPWARDS, RangeAnswer, TxnAnswer, get, get_op
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.etcd.wire.watching import Watched
from interlock.errors import SettingsMismatch
from interlock.model import EVERYTHING, Busy, Claim

MANY_PERMITS = 1000  # a capacity above this is a read-write lock's, or so large that the whole queue is read
RECHECK_PERIOD_S = 60.0
"""Seconds after which a waiter asks again that has heard nothing.

A watch tells it of every change, and a connection that tells nothing any more is noticed by its pings: so
this is only for faults that nobody has thought of. Asking costs six messages, and one of them a commit; every
ten seconds, hundreds of waiters kept a cluster busy.
"""

MAX_WHOLE_CLAIMS = 6  # claims up to which a claim that shares with nobody reads the queue that it enters
FRONT_CLAIMS = 4  # claims that are read from the front of the queue of a mutex


def exclusive(claim: Claim) -> bool:
    """Whether it can share with nobody: a mutex, or a writer."""
    return claim.permits >= claim.capacity


def reader(claim: Claim) -> bool:
    """Whether it is a reader, and so has a key where only readers stand: none of them is ever in the way
    of another.
    """
    return claim.permits == 1 and claim.capacity == EVERYTHING


def waits_for_writers(claim: Claim) -> bool:
    """Whether it is a reader in a queue: it need not read the other readers. (A claim that tries once must
    enter in one step with its read.)
    """
    return claim.queued and reader(claim)


def writers(keys: Keys, resource: str, *, serializable: bool = False, max_create: int = 0) -> list[bytes]:
    """Two reads of all claims but readers.

    Of an earlier version's readers, too: their values tell what they are.
    """
    (first, end), (readers, behind) = keys.folder(resource), keys.readers(resource)
    return [
        get_op(get(*part, serializable=serializable, max_create=max_create))
        for part in ((first, readers), (behind, end))
    ]


@lru_cache(maxsize=1024)
def reads_of_reader(keys: Keys, resource: str, mine: bytes) -> tuple[list[bytes], list[bytes]]:
    """The reads of a reader that has just entered, and of one that has not: writers, a few readers; and
    itself.
    """
    reads = [*writers(keys, resource), get_op(get(*keys.readers(resource), limit=MAX_WHOLE_CLAIMS))]
    return [*reads, get_op(get(keys.floor)), get_op(get(mine))], reads


def queue_reads(claim: Claim, folder: tuple[bytes, bytes], created: int = 0) -> list[bytes]:
    """The reads of a Txn that make a view; with `created`, its end is at the claim of that revision."""
    return queue_reads_for(claim.permits, claim.capacity, folder, created)


@lru_cache(maxsize=1024)
def queue_reads_for(
    permits: int, capacity: int, folder: tuple[bytes, bytes], created: int = 0
) -> list[bytes]:
    """The same for a claim of so many permits."""
    limit = FRONT_CLAIMS if permits >= capacity else 0 if capacity > MANY_PERMITS else capacity + 2
    return [
        get_op(get(*folder, limit=limit, order=UPWARDS)),
        get_op(get(*folder, limit=2, order=DOWNWARDS, max_create=created)),
    ]


def reads_on_entering(permits: int, capacity: int, queued: bool, folder: tuple[bytes, bytes]) -> list[bytes]:
    """The reads of a claim that has just entered.

    If it shares with nobody, a short queue says everything, and a long one that it must wait. To sort a
    queue, the server reads all of it.
    """
    if queued and permits >= capacity:
        return [get_op(get(*folder, limit=MAX_WHOLE_CLAIMS))]
    return queue_reads_for(permits, capacity, folder)


class QueueView:
    """The front of a queue, its last two claims, and how many there are."""

    def __init__(self, front: list[ClaimKey], tail: list[ClaimKey], count: int) -> None:
        self.front = front
        self.tail = tail
        self.count = count

    @classmethod
    def of(cls, answer: TxnAnswer, first: int) -> QueueView:
        front = answer.ranged(first)
        tail = answer.ranged(first + 1)
        return cls(_claim_keys(front), _claim_keys(tail), front.count)

    @classmethod
    def on_entering(cls, claim: Claim, answer: TxnAnswer) -> QueueView:
        """The view of a claim that has just entered: of a long queue perhaps nothing but its length, see
        `reads_on_entering`.
        """
        if not (claim.queued and exclusive(claim)):
            return cls.of(answer, 1)
        found = answer.ranged(1)
        queue = sorted(_claim_keys(found), key=_age)
        if found.count == len(queue):
            return cls(queue, queue[:-3:-1], found.count)
        if any(claim_key.capacity not in (None, claim.capacity) for claim_key in queue):
            return cls([], queue, found.count)  # whether that is a mismatch, a read of the front tells
        return cls([], [], found.count)

    @classmethod
    def of_reader(cls, claim: Claim, answer: TxnAnswer) -> QueueView:
        """The view of a reader: everything if the queue is short, otherwise those ahead that it may have to
        wait for, and itself.
        """
        *others, readers, _, mine = (answer.ranged(index) for index in range(1, 6))
        found = [claim_key for part in others for claim_key in _claim_keys(part)]
        count = sum(part.count for part in others) + readers.count
        if readers.count == len(readers.kvs):
            queue = sorted([*found, *_claim_keys(readers)], key=_age)
            return cls(queue, queue[:-3:-1], count)
        own = [claim_key for claim_key in _claim_keys(mine) if claim_key.claim_id == claim.id]
        ahead = [claim_key for claim_key in found if not own or claim_key.created < own[0].created]
        return cls(sorted([*ahead, *own], key=_age), [], count)

    @property
    def unread(self) -> bool:
        """Whether it tells nothing but the length of a long queue."""
        return not self.front and not self.tail and self.count > 0

    def own(self, key: bytes, id: str) -> ClaimKey | None:
        """The key of this claim. Another claim may stand at its key."""
        found = next((claim_key for claim_key in (*self.front, *self.tail) if claim_key.key == key), None)
        return found if found is not None and found.claim_id == id else None

    def place(self, key: bytes) -> int | None:
        """Its place from the front; None if it stands behind what was read, or nowhere."""
        return next((place for place, claim_key in enumerate(self.front) if claim_key.key == key), None)

    @property
    def whole(self) -> bool:
        return self.count == len(self.front)

    def check_capacity(self, claim: Claim) -> None:
        """Raise if the first claim of ours in the queue has another capacity; a stranger has no say."""
        first = next((claim_key for claim_key in self.front if not claim_key.foreign), None)
        if first is not None and first.capacity is not None and first.capacity != claim.capacity:
            raise SettingsMismatch(claim.resource, claim.capacity, first.capacity)

    def fits(self, claim: Claim, place: int | None = None) -> bool:
        """Whether a claim is admitted at this place, or behind all of them."""
        if place is None and not self.whole:
            return False
        ahead = self.front[:place]
        return sum(claim_key.permits(claim.capacity) for claim_key in ahead) + claim.permits <= claim.capacity

    def busy(self, claim: Claim, ahead: int) -> Busy:
        holder = self.front[0] if self.front else None
        if holder is None:
            return Busy(ahead, 1.0)
        return Busy(ahead, RECHECK_PERIOD_S, holder.standing(claim.capacity, True, holder.ttl))

    def watched(self, claim: Claim, own: ClaimKey, folder: tuple[bytes, bytes]) -> tuple[Watched, ...]:
        """The keys that a waiter must watch: its own, and those that must change first."""
        place = self.place(own.key)
        if exclusive(claim) or place is None:
            ahead = next((claim_key for claim_key in self.tail if claim_key.created < own.created), None)
            # Who shares with nobody waits for everybody ahead to leave; that one of them says it was admitted
            # changes nothing.
            return (
                _own(own),
                *(() if ahead is None else (Watched(ahead.key, only_deletions=exclusive(claim)),)),
            )
        return watched_in(claim, self.front[: place + 1], folder)


def watched_in(claim: Claim, queue: list[ClaimKey], folder: tuple[bytes, bytes]) -> tuple[Watched, ...]:
    """The keys that the last of a queue must watch, if all of the queue was read."""
    permits = [claim_key.permits(claim.capacity) for claim_key in queue]
    places = to_watch(permits, len(queue) - 1, claim.capacity)
    if len(places) > 1:  # the first waiter, who watches every holder: one watch of all claims does that
        return (Watched(*folder),)
    return (_own(queue[-1]), *(Watched(queue[place].key) for place in places))


def is_in(claim: Claim, queue: list[ClaimKey]) -> bool:
    """Whether the last of a queue is admitted."""
    return admitted([claim_key.permits(claim.capacity) for claim_key in queue], claim.capacity) == len(queue)


def marks(claim: Claim) -> bool:
    """Whether others may wait for this claim to be let in, which leaves no trace unless it makes one (a
    semaphore's).
    """
    return not exclusive(claim) and claim.capacity < EVERYTHING


def _age(claim_key: ClaimKey) -> int:
    return claim_key.created


def _own(own: ClaimKey) -> Watched:
    return Watched(own.key, only_deletions=True)


def _claim_keys(found: RangeAnswer) -> list[ClaimKey]:
    return [ClaimKey(kv) for kv in found.kvs]
