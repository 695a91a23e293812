"""One connection to one member, which many callers share: what the blocking and the asyncio one have in
common.

All calls and watches of a connection are multiplexed on one socket. A read that follows a watch is made on
the same connection, so that the member that told of a change also answers the read.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from interlock.backends.etcd.address import Endpoint
from interlock.backends.etcd.errors import NotAuthenticated, status_error
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire.grpc import OK, UNAVAILABLE, Call, Status, framed, head
from interlock.backends.etcd.wire.http2 import Connection, Stream, literal
from interlock.backends.etcd.wire.messages import WATCH, Method
from interlock.backends.etcd.wire.watching import Watched, WatchGroup, WatchStream

PING_AFTER_S = 10.0  # seconds without a byte from the server after which it is asked whether it lives
PONG_WITHIN_S = 5.0  # seconds that it has for the answer
# The part of its time after which a low-priority call that was not sent is given up: the server needs time,
# too.
UNSENT_PART = 0.5
MAX_ADDED_ROUND_TRIP_S = 2.0  # seconds that the round trip to a distant server may add to the time of a call
# A member that has lost its leader must end our watches, or a waiter would sleep on.
HAS_LEADER = literal(b"hasleader", b"true")


class MemberConnection(ABC):
    """One connection.

    `usable` turns False when it may not begin new calls; those under way may still be answered.
    """

    def __init__(self, endpoint: Endpoint, credentials: Credentials, *, tls: bool) -> None:
        self.endpoint = endpoint
        self.label = endpoint.label
        self._credentials = credentials
        self._tls = tls
        self._core = Connection()
        self._heads: dict[Method, bytes] = {}
        self._watching: WatchStream | None = None
        self._watch_stream: Stream | None = None
        self._watch_token = 0  # the number of the token that the stream was opened with
        self.ended = False
        self.term = 0  # the raft term that this member last told us on this connection
        self.served = (
            0.0  # when a call was last answered that a member cannot answer by itself, without the leader
        )
        self.asked = 0.0  # when the first call was sent that has no answer of this kind yet
        self.least = 0.0  # what any call is given, seconds: a distant server cannot answer sooner
        self.heard = 0.0  # when something last arrived
        self._listened = 0.0  # since when somebody listens: silence before that means nothing

    @property
    def token(self) -> int:
        """The number of the token that a call would be sent with now."""
        return self._credentials.number

    @property
    def usable(self) -> bool:
        return not self.ended and not self._core.draining

    def note_request(self, now: float) -> None:
        """A call is sent.

        However short each of them is: a member that serves none of them is not to be asked for ever.
        """
        if self.asked <= self.served:
            self.asked = now

    def note_answer(self, sent: float) -> None:
        """A call that was sent at this time was answered, with the leader's help.

        The first round trip says how far away a member is, unless it was busy or frozen then: without another
        look, every call on this connection might be late by as much for as long as the connection lives.
        """
        self.served = now = time.monotonic()
        if 2 * (now - sent) < self.least:
            self.least = 2 * (now - sent)

    # ---- what a store asks --------------------------------------------------------------

    @abstractmethod
    async def call(self, method: Method, body: bytes, timeout: float, *, low_priority: bool = False) -> bytes:
        """The answer to a call of one message; raises what `status_error` makes of any other outcome.

        A `low_priority` call lets others go before it while many are under way; `HeldUp` if its time is up
        before it was sent.
        """

    @abstractmethod
    def post(self, method: Method, body: bytes, done: Callable[[], object] | None = None) -> Call:
        """Send a call and do not wait for its answer. It may get lost; nothing is raised.

        `done` is called if it was answered.
        """

    @abstractmethod
    async def open_watches(self, watched: Sequence[Watched], timeout: float) -> WatchGroup:
        """Watch from now on: returns when the server has confirmed it. `close_watches` it in the end."""

    @abstractmethod
    async def changed(self, group: WatchGroup, timeout: float) -> bool:
        """Return True when something watched has changed, or nothing can be heard any more; False after
        `timeout` seconds.
        """

    @abstractmethod
    def close_watches(self, group: WatchGroup) -> None: ...

    @abstractmethod
    def end(self, why: str) -> None:
        """Close the connection; calls under way fail, and watchers wake up."""

    # ---- for both kinds -----------------------------------------------------------------

    def _head(self, method: Method) -> bytes:
        """The headers of a method without the token of the login: they are the same for each call."""
        made = head(method, self.endpoint.authority.encode(), tls=self._tls)
        self._heads[method] = made
        return made

    def _request(self, method: Method, body: bytes, call: Call, low_priority: bool = False) -> Stream:
        head = self._heads.get(method) or self._head(method)
        return self._core.request(
            head + self._credentials.metadata, framed(body), call, low_priority=low_priority
        )

    @staticmethod
    def _posted(done: Callable[[], object] | None) -> Call:
        call = Call()

        def over() -> None:
            if done is not None and call.status is not None and call.status.code == OK:
                done()

        call.wake = over
        return call

    def _answer(self, call: Call) -> bytes:
        """The message of a call that has ended."""
        status = call.status
        assert status is not None
        if status.code != OK:
            raise status_error(self.label, status)
        if not call.messages:
            raise status_error(self.label, Status(UNAVAILABLE, "the answer is empty"))
        return call.messages[0]

    def _watch(self, group: WatchGroup, watched: Sequence[Watched]) -> None:
        """Put the requests for watches out; the stream for them is opened with the first."""
        stream, watching = self._watch_stream, self._watching
        if stream is None or watching is None or watching.status is not None:
            watching = WatchStream()
            head = self._head(WATCH) + self._credentials.metadata + HAS_LEADER
            stream = self._core.request(head, b"", watching, last=False)
            self._watching, self._watch_stream = watching, stream
            self._watch_token = self._credentials.number
        for message in watching.open(group, watched):
            self._core.send(stream, framed(message))

    def _unwatch(self, group: WatchGroup) -> None:
        if self._watching is not None and self._watch_stream is not None:
            for message in self._watching.close(group):
                self._core.send(self._watch_stream, framed(message))

    def _check_opened(self, group: WatchGroup) -> None:
        """Raise if the watches were refused: the token in the headers of their stream may have expired."""
        why = group.ended
        if why:
            self._credentials.forget(self._watch_token)
            stream, watching = self._watch_stream, self._watching
            if stream is not None and watching is not None and group.stream is watching:
                self._watch_stream = self._watching = None
                self._core.reset(stream)
                # All who watch on it look again; those whose watches it has not confirmed yet learn why.
                watching.on_failure(why, processed=True)
            if group.refused:  # the caller looks again, and logs in for that, or learns that it has no right
                raise NotAuthenticated(why)
            raise status_error(self.label, Status(UNAVAILABLE, why))

    def _silence(self, now: float) -> float:
        """Seconds until the server must be asked whether it lives, or counts as dead; a ping is put out
        when due.
        """
        if not self._core.streams:
            return PING_AFTER_S
        idle = now - max(self.heard, self._listened)
        if idle < PING_AFTER_S:
            return PING_AFTER_S - idle
        if not self._core.pings:
            self._core.ping()
            return PONG_WITHIN_S
        return max(0.0, PING_AFTER_S + PONG_WITHIN_S - idle)
