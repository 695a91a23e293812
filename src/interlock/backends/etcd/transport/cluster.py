"""The transport of a cluster: finds a member that serves, logs in, sends calls, and goes on to another member when one fails.

Written once for threads and tasks; the two kinds differ in how a line is opened and in who waits for that.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.errors import (
    Advised,
    Broken,
    NotAuthenticated,
    NotProcessed,
    Refused,
    nobody,
    unreachable,
)
from interlock.backends.etcd.transport.calltime import CallTime
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.transport.line import FARTHEST, Line
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import Method, StatusAnswer
from interlock.errors import HeldUp, InterlockError, StoreUnavailable, StoreUnfit, Unreached

PAUSE = 0.05  # seconds before a call is repeated that no member could serve: an election takes longer
SHORTEST = 0.001
FIRST_TRY = 1.0  # seconds that the first member has at least before another one is asked
SEEK = 4.0  # how much longer than the first connection the search for the leader may take
UNSERVED = 1.0  # seconds without an answer that needs a leader, after which another member is asked,
UNSERVED_KEEPER = 0.3  # and for the keeper, whose connection nobody else uses
MOST_SEEK = 0.5  # and seconds that one member may take for it


class ClusterTransport(ABC):
    """Carries calls to a cluster. `hurried` is the keeper's: it has no time of its own for connecting."""

    def __init__(self, address: Address, credentials: Credentials, *, hurried: bool = False) -> None:
        self.address = address
        self._credentials = credentials
        self.hurried = hurried
        self._first = 0  # the endpoint to begin with
        self.took = 0.0  # seconds that the last connection took
        self._closed = False
        self._companion: ClusterTransport | None = None  # the keeper's, connected before anything is granted
        self._accompanied = False

    def accompany(self, companion: ClusterTransport) -> None:
        """Have the keeper's transport connected before the first call of this one is sent."""
        self._companion, self._accompanied = companion, False

    # ---- calls --------------------------------------------------------------------------

    async def call(
        self,
        method: Method,
        body: bytes,
        time_left: CallTime,
        *,
        again: bool = True,
        patient: bool = False,
        unsure: Callable[[], object] | None = None,
    ) -> bytes:
        """The answer of whichever member serves.

        `again` says that repeating the call is harmless: then it is repeated, also on other members, within its time.
        `patient` says that other calls come first while many are under way: a crowd of claims must hold up no release.
        `unsure` is called if one of the tries may still be under way to the server.
        """
        tries, logins = 0, 0
        while True:
            line = self.ready_line()
            if line is None:
                line, connecting = await self.line(time_left.to_connect())
                time_left.connected(connecting)
            share = left = max(line.least, time_left.for_request())
            sent = time.monotonic()
            if again and not tries and len(self.address.endpoints) > 1:
                share = min(left, max(FIRST_TRY, left / 2))  # a frozen member must not use up all of the time
            tries += 1
            try:
                answer = await line.call(method, body, share, patient=patient)
                line.note_answer(sent)
                return answer
            except NotAuthenticated as error:
                logins += 1
                await self.log_in_again(line, error, left, logins)
            except HeldUp:  # nothing was sent, so this says nothing about the member
                if time_left.left() <= PAUSE:
                    raise
            except StoreUnavailable as error:
                self.leave(line, error, sent)
                if unsure is not None and not isinstance(error, Unreached):
                    unsure()
                if not (again or isinstance(error, NotProcessed)) or time_left.left() <= PAUSE:
                    raise
                if tries > 1:
                    await self._pause(PAUSE)

    async def ask(self, method: Method, body: bytes, timeout: float) -> bytes:
        """The answer to a call that stands alone: one with a time of its own for connecting."""
        return await self.call(method, body, CallTime(time.monotonic, timeout, self.address.connect_timeout))

    def leave(self, line: Line, error: StoreUnavailable, sent: float) -> None:
        """The next call goes to another member, unless this one only closed an old connection, or is slow for a moment."""
        if isinstance(error, (Broken, NotProcessed)):
            line.end(str(error))
        elif isinstance(error, Refused) or line.heard < sent or self._unserved(line, sent):
            endpoints = self.address.endpoints
            if endpoints[self._first] == line.endpoint:
                self._first = (self._first + 1) % len(endpoints)
            # Nothing came since the call was sent, or the member has no leader: its watchers must look elsewhere, too.
            line.end(str(error))

    def _unserved(self, line: Line, sent: float) -> bool:
        """Whether a member has served nothing for so long that it may be cut off from the others.

        Such a member goes on with everything that it can do alone: it acknowledges data, answers pings and serializable reads.
        """
        patience = UNSERVED_KEEPER if self.hurried else UNSERVED
        alone = len(self.address.endpoints) == 1
        return not alone and line.served < sent and time.monotonic() - sent >= patience

    async def warm(self, timeout: float) -> None:
        """Connect, if there is no connection yet."""
        await self.line(timeout)

    # ---- lines --------------------------------------------------------------------------

    @abstractmethod
    def ready_line(self) -> Line | None:
        """The line that calls are sent on now; None if one must be opened first."""

    @abstractmethod
    async def line(self, timeout: float) -> tuple[Line, float]:
        """A line, and the seconds that connecting took: at most `timeout` and `connect_timeout`."""

    @abstractmethod
    async def _open(self, endpoint: Endpoint, timeout: float) -> Line:
        """A new line to one member."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None: ...

    @abstractmethod
    async def _connect_companion(self, companion: ClusterTransport, timeout: float) -> None: ...

    @abstractmethod
    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here, so that it must not send a request."""

    @abstractmethod
    def after_fork(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _connect(self, timeout: float) -> Line:
        """A line to the leader if it is found quickly, otherwise to any member that answers; logged in."""
        began = time.monotonic()
        until = began + timeout
        if self._companion is not None and not self._accompanied:
            await self._connect_companion(self._companion, timeout)
            self._accompanied = True
        line = await self._found(until)
        try:
            if self._credentials.missing:
                await self._log_in(line, max(SHORTEST, until - time.monotonic()))
        except BaseException:
            line.end("logging in failed")
            raise
        self.took = time.monotonic() - began
        return line

    async def _found(self, until: float) -> Line:
        endpoints = self.address.endpoints
        order = [(self._first + n) % len(endpoints) for n in range(len(endpoints))]
        second: tuple[Line, int] | None = None  # a member that serves and does not lead
        error: InterlockError = unreachable(self.address.place, "no time was left for it")
        took = 0.0
        for n, number in enumerate(order):
            began = time.monotonic()
            share = (until - began) / (len(order) - n)
            if second is not None:
                share = min(share, MOST_SEEK, max(0.02, SEEK * took))
            if share <= 0:
                break
            try:
                line, status = await self._greeted(endpoints[number], share)
            except InterlockError as failed:
                error = failed
                continue
            except BaseException:
                if second is not None:
                    second[0].end("interrupted")
                raise
            took = took or time.monotonic() - began
            if status.leader == status.member:
                if second is not None:
                    second[0].end("another member leads")
                self._first = number
                return line
            if second is None and (status.leader or n == len(order) - 1):
                second = line, number
            else:
                line.end("another member is used")
        if second is None:
            if isinstance(error, StoreUnavailable):
                raise nobody(self.address.place, self.address.hosts, error) from None
            raise error
        self._first = second[1]
        return second[0]

    async def _greeted(self, endpoint: Endpoint, timeout: float) -> tuple[Line, StatusAnswer]:
        """A new line, and what its member says of itself: that it is etcd, and who leads."""
        began = time.monotonic()
        hint = "for TLS" if self.address.tls is not None else "not for TLS (etcds://)"
        line = await self._open(endpoint, timeout)
        try:
            asked = time.monotonic()
            data = await line.call(messages.STATUS, b"", max(SHORTEST, timeout - (asked - began)))
            line.least = min(FARTHEST, 2 * (time.monotonic() - asked))
            status = StatusAnswer(data)
        except Broken as error:
            line.end("no greeting")
            raise Advised(
                f"{line.place}: cannot connect: {error.args[0]}; is it etcd's port for clients, and {hint}?"
            ) from None
        except BaseException:
            line.end("no greeting")
            raise
        line.term = status.term
        return line, status

    async def log_in_again(self, line: Line, error: Exception, timeout: float, logins: int) -> None:
        """Get another token after a call was refused; `StoreUnfit` if that has been of no use."""
        if logins > 1 or not self._credentials.user:
            raise _no_login(line.place, error) from None
        self._credentials.forget()
        await self._log_in(line, timeout)

    async def _log_in(self, line: Line, timeout: float) -> None:
        credentials = self._credentials
        body = messages.authenticate(credentials.user, credentials.password)
        try:
            credentials.accept(messages.token_of(await line.call(messages.AUTHENTICATE, body, timeout)))
        except NotAuthenticated as error:
            raise _no_login(line.place, error) from None
        except StoreUnfit as error:
            if "authentication is not enabled" not in str(error):
                raise


def _no_login(place: str, error: Exception) -> StoreUnfit:
    return StoreUnfit(
        f"{place}: the server wants a user and a password ({error}); write etcd://user:password@host"
    )
