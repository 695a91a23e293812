"""The watches of one connection: all of them share one stream, and each wait has a few of them. No I/O.

A watch begins "from now". Until the server has said that it is created, a change may be missed; after that,
none is: so whoever waits opens its watches first, then looks, then waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interlock._support.record import record
from interlock.backends.etcd.wire.grpc import Call
from interlock.backends.etcd.wire.messages import WatchAnswer, unwatch, watch


@record
class Watched:
    """A key, or a range of keys, of which changes are told."""

    key: bytes
    end: bytes = b""
    only_deletions: bool = False


class WatchGroup:
    """The watches of one waiter. `wake` is called when `ready`, `fired` or `ended` may have changed."""

    __slots__ = ("ended", "fired", "hit", "numbers", "opening", "refused", "stream", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.stream: WatchStream | None = None  # on which it watches
        self.numbers: list[int] = []
        self.opening = 0  # watches that the server has not confirmed yet
        self.fired = False  # something has changed, or may have
        self.hit: dict[int, int] = {}  # watches that told of a change, each with the last one's revision
        self.ended = ""  # why nothing is heard any more
        self.refused = False  # without a reason: the token is old, or there is no right
        self.wake = wake

    @property
    def ready(self) -> bool:
        return self.opening <= 0


class WatchStream(Call):
    """Receives the watch stream of a connection, and tells the groups."""

    __slots__ = ("_groups", "_next")

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._groups: dict[int, WatchGroup] = {}
        self._next = 1

    def open(self, group: WatchGroup, watched: Sequence[Watched]) -> list[bytes]:
        """Enter a group; returns the messages that open its watches."""
        messages: list[bytes] = []
        for one in watched:
            number, self._next = self._next, self._next + 1
            group.numbers.append(number)
            self._groups[number] = group
            messages.append(watch(number, one.key, one.end, only_deletions=one.only_deletions))
        group.opening, group.stream = len(messages), self
        return messages

    def close(self, group: WatchGroup) -> list[bytes]:
        """Take a group out; returns the messages that cancel its watches."""
        return [unwatch(number) for number in group.numbers if self._groups.pop(number, None) is not None]

    @property
    def groups(self) -> int:
        return len(self._groups)

    def on_message(self, message: bytes) -> None:
        answer = WatchAnswer(message)
        # The server also confirms what we cancel, by its number: that must not end those who are just opening
        # a watch.
        if answer.cancelled and not 0 < answer.number < self._next:
            self._refused()
            return
        group = self._groups.get(answer.number)
        if group is None:
            return  # cancelled by us meanwhile
        if answer.created:
            group.opening -= 1
        if answer.changed:
            group.hit[answer.number] = answer.changed
            group.fired = True
        if answer.cancelled:  # by the server: no right to read, for example
            group.ended = "the server has cancelled the watch"
        if group.ready or group.fired or group.ended:
            group.wake()

    def _refused(self) -> None:
        """End all that wait to be opened: from etcd 3.5 on, a refusal (an old token, no right) does not
        say which it refuses.
        """
        for group in {group for group in self._groups.values() if not group.ready}:
            group.ended, group.refused = "the server has refused the watch", True
            group.wake()

    def on_failure(self, why: str, processed: bool) -> None:
        super().on_failure(why, processed)
        self._tell_end()

    def on_headers(self, headers: dict[bytes, bytes], last: bool) -> None:
        super().on_headers(headers, last)
        self._tell_end()

    def on_data(self, data: bytes, last: bool) -> None:
        super().on_data(data, last)
        self._tell_end()

    def _tell_end(self) -> None:
        if self.status is None:
            return
        groups, self._groups = set(self._groups.values()), {}
        for group in groups:
            group.ended = self.status.text or "the watch has ended"
            group.wake()
