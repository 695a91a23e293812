"""Who waits in one store, threads and tasks alike, and what came for them before they listened.

Topics are claims by their id, registers by their key, and queues. How what is published gets here is for `listener`, by one
subscription, and for `sharded`, by one for each master that somebody waits on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from interlock import native
from interlock.backends.redis.pubsub.reader import Knock
from interlock.errors import StoreUnavailable
from interlock.ports import Signal

KEPT = 4096  # messages kept for waiters that do not listen yet


class NobodyListens(StoreUnavailable):
    """No thread could be started that hears what is published; the next who waits tries again."""


def queue(resource: str) -> bytes:
    """The topic of all who wait for a resource; no claim's id and no key is spelled like this."""
    return b"\x1e" + resource.encode()


def _left(signal: Signal) -> bool:
    return isinstance(signal, Knock) and signal.left


class Ears:
    """Sets the signals of those who wait."""

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet."""
        self._guard = native.guard()
        self._ears: dict[bytes, dict[Signal, None]] = {}
        self._kept: dict[bytes, int] = {}
        self._arriving: dict[Signal, bytes] = {}  # who waits for a subscription, and to which channel
        self._abandoned: list[Signal] = []
        self._closed = False

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here."""
        return self._guard._is_owned()

    def decided(self, resource: str) -> bool:
        """Whether it is known which channel claims on a resource have; where there is one way, it is."""
        return True

    # ---- who waits ---------------------------------------------------------------

    def listen(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            self._ears.setdefault(topic, {})[signal] = None
            self._attend()

    def _attend(self) -> bool:
        """Somebody listens, under the guard: for those whose thread is started by that. False if it cannot be."""
        return True

    def forget(self, topic: bytes, signal: Signal) -> None:
        with self._guard:
            ears = self._ears.get(topic)
            if ears is not None:
                ears.pop(signal, None)
                if not ears:
                    del self._ears[topic]
            self._arriving.pop(signal, None)

    def _leave_behind(self) -> None:
        """Count those no more, under the guard, whose loop was closed while they waited: for them nobody need listen.

        They are kept: to collect a task is to end it, on any thread and at any time, and where it ends it wants the guard,
        which that thread may have.
        """
        for topic, ears in list(self._ears.items()):
            for signal in [signal for signal in ears if _left(signal)]:
                self._abandoned.append(signal)
                del ears[signal]
            if not ears:
                del self._ears[topic]
        for signal in [signal for signal in self._arriving if _left(signal)]:
            del self._arriving[signal]  # it listens, too, and is kept for that

    def taken(self, id: bytes) -> int | None:
        """The token this claim was told, 0 if it should look, None if it was told nothing."""
        return self._kept.pop(id, None)

    def known(self, id: bytes) -> bool:
        """Whether something came for this claim before it listened."""
        return id in self._kept

    def over(self, id: bytes) -> None:
        """This claim was removed by us: forget what came for it, and wake whoever waits for its removal."""
        if self._kept:
            self._kept.pop(id, None)
        if id in self._ears:
            self._wake(id)

    # ---- what is heard --------------------------------------------------------------

    def tell(self, told: Sequence[Any]) -> None:
        """Pass on what a script told its caller: id, token, id, token, ..."""
        for i in range(0, len(told), 2):
            self._hear(told[i], int(told[i + 1]))

    def look(self, topic: bytes) -> None:
        """Have everybody who waits for a topic look again: what they were told may be lost."""
        if topic in self._ears:
            self._wake(topic)

    def _grant(self, message: bytes) -> None:
        """What a script published: id and token."""
        id, _, token = message.rpartition(b" ")
        self._hear(id, int(token))

    def _hear(self, id: bytes, token: int) -> None:
        if len(self._kept) >= KEPT:  # of waiters that gave up: the oldest have long been answered
            for old in list(self._kept)[: KEPT // 2]:
                self._kept.pop(old, None)
        self._kept[id] = token  # before the signal: who wakes must find it
        self._wake(id)

    def _wake(self, topic: bytes) -> None:
        with self._guard:
            signals = list(self._ears.get(topic, ()))
        for signal in signals:
            signal.set()

    def _arrived(self, channels: Collection[bytes]) -> list[Signal]:
        """Those who waited for a subscription to one of these, under the guard; they wait for none any more."""
        found = [signal for signal, wanted in self._arriving.items() if wanted in channels]
        for signal in found:
            del self._arriving[signal]
        return found
