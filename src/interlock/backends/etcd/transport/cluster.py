"""The transport of a cluster: finds a member that serves, logs in, sends calls, and goes on to another member
when one fails.

Written once for threads and tasks; the two kinds differ in how a connection is opened and in who waits for
that.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.errors import (
    Advised,
    Broken,
    Denied,
    NotAuthenticated,
    NotProcessed,
    OldRevision,
    Refused,
    a_proxy,
    nobody,
    timeout_error,
    two_clusters,
    unreachable,
)
from interlock.backends.etcd.transport.connection import MAX_ADDED_ROUND_TRIP_S, MemberConnection
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.transport.versions import check_version
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.grpc import Call
from interlock.backends.etcd.wire.messages import Method, StatusAnswer
from interlock.backends.kit.deadline import Deadline
from interlock.errors import HeldUp, InterlockError, StoreUnavailable, StoreUnfit, Unreached

PAUSE_S = 0.05  # seconds before a call is repeated that no member could serve: an election takes longer
MIN_REQUEST_S = 0.001
MIN_TRY_S = 0.5  # seconds that a member has at least before the call is sent again, or to another one
SEARCH_SLOWDOWN = 4.0  # how much longer than the first connection the search for the leader may take
UNSERVED_S = 1.0  # seconds without an answer that needs a leader, after which another member is asked,
UNSERVED_KEEPER_S = 0.3  # and for the keeper, whose connection nobody else uses
MAX_SEARCH_S = 0.5  # and seconds that one member may take for it
# Seconds that connecting may take, so that members are asked which could be left out.
MAX_NEAR_S = 0.1
# Connections to a single address, which may be a balancer's, in search of a member that knows a leader.
BEHIND = 4
MAX_LOGINS = 2  # tokens that may be refused in one call: another caller's may be as old as ours
CANCELLED = "context canceled"
NO_LEASE = 1  # nobody's: ours, and those of etcdctl, are large random numbers
LOGIN_PAUSE_S = 0.01  # seconds after which a caller looks whether another one has logged in


class ClusterTransport(ABC):
    """Carries calls to a cluster. One `for_keeper` has no time of its own for connecting."""

    def __init__(self, address: Address, credentials: Credentials, *, for_keeper: bool = False) -> None:
        self.address = address
        self._credentials = credentials
        self.for_keeper = for_keeper
        self._first = 0  # the endpoint to begin with
        self._cluster = 0  # the id of the cluster that it was connected to
        self.took = 0.0  # seconds that the last connection took
        self.closed = False
        self.on_connected: Callable[[MemberConnection], object] = _nothing  # called with each new connection
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
        deadline: Deadline,
        *,
        again: bool = True,
        low_priority: bool = False,
        unsure: Callable[[], object] | None = None,
    ) -> bytes:
        """The answer of whichever member serves.

        `again` says that repeating the call is harmless: then it is repeated, also on other members, within
        its time. `low_priority` says that other calls come first while many are under way: a crowd of claims
        must hold up no release. `unsure` is called if one of the tries may have been applied, or may still
        be. After such a try, this does not raise `Unreached`, which says that nothing was sent.
        """
        applied = False

        def doubt() -> None:
            nonlocal applied
            applied = True
            if unsure is not None:
                unsure()

        try:
            return await self._call(method, body, deadline, again, low_priority, doubt)
        except Unreached as error:
            if applied:  # perhaps, by an earlier try
                raise StoreUnavailable(str(error)) from None
            raise

    def _share(self, left: float, again: bool) -> float:
        """The seconds that one member has for a call.

        A frozen member must not use up all of the time: we ask another one, or our caller does. Nor must one
        that has passed the request on to a leader which is gone: it does not notice for seconds. A single
        address may be a balancer's, which leads the next connection to another member; a call that may not
        be repeated gains nothing from that.
        """
        return min(left, max(MIN_TRY_S, left / 2)) if again or len(self.address.endpoints) > 1 else left

    async def _call(
        self,
        method: Method,
        body: bytes,
        deadline: Deadline,
        again: bool,
        low_priority: bool,
        doubt: Callable[[], object],
    ) -> bytes:
        tries, logins = 0, 0
        while True:
            token = self._credentials.number
            connection = self.ready_connection()
            if connection is None:
                connection, connecting = await self.connection(deadline.to_connect())
                deadline.connected(connecting)
            left = max(connection.least, deadline.for_request())
            sent = time.monotonic()
            connection.note_request(sent)
            tries += 1
            try:
                answer = await connection.call(
                    method, body, self._share(left, again), low_priority=low_priority
                )
                connection.note_answer(sent)
                return answer
            except NotAuthenticated as error:
                logins += _counts(error, connection, deadline.left())
                await self.log_in_again(connection, error, left, logins, token)
            except HeldUp:  # nothing was sent, so this says nothing about the member
                if deadline.left() <= PAUSE_S:
                    raise
            except StoreUnavailable as error:
                self.leave(connection, error, sent)
                if not isinstance(error, Unreached):
                    doubt()
                if not (again or isinstance(error, NotProcessed)) or deadline.left() <= PAUSE_S:
                    raise
                if tries > 1:
                    await self.pause(PAUSE_S)

    async def ask(self, method: Method, body: bytes, timeout: float) -> bytes:
        """The answer to a call that stands alone: one with a time of its own for connecting."""
        return await self.call(method, body, Deadline(time.monotonic, timeout, self.address.connect_timeout))

    def leave(self, connection: MemberConnection, error: StoreUnavailable, sent: float) -> None:
        """The next call goes to another member, unless this one only closed an old connection, or is slow
        for a moment.
        """
        if isinstance(error, (Broken, NotProcessed)):
            connection.end(str(error))
        elif isinstance(error, Refused) or connection.heard < sent or self._unserved(connection):
            endpoints = self.address.endpoints
            if endpoints[self._first] == connection.endpoint:
                self._first = (self._first + 1) % len(endpoints)
            # Nothing came since the call was sent, or the member has no leader: its watchers must look
            # elsewhere, too.
            connection.end(str(error))

    def _unserved(self, connection: MemberConnection) -> bool:
        """Whether a member has served nothing for so long that it may be cut off from the others.

        Such a member goes on with everything that it can do alone: it acknowledges data, answers pings and
        serializable reads. A single address may be a balancer's, behind which the next connection finds
        another member.
        """
        longest = UNSERVED_KEEPER_S if self.for_keeper else UNSERVED_S
        return connection.served < connection.asked <= time.monotonic() - longest

    async def warm(self, timeout: float) -> None:
        """Connect, if there is no connection yet."""
        await self.connection(timeout)

    # ---- connections --------------------------------------------------------------------------

    @abstractmethod
    def ready_connection(self) -> MemberConnection | None:
        """The connection that calls are sent on now; None if one must be opened first."""

    @abstractmethod
    async def connection(self, timeout: float) -> tuple[MemberConnection, float]:
        """A connection, and the seconds that connecting took: at most `timeout` and `connect_timeout`."""

    @abstractmethod
    async def _open(self, endpoint: Endpoint, timeout: float) -> MemberConnection:
        """A new connection to one member."""

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    @abstractmethod
    async def _connect_companion(self, companion: ClusterTransport, timeout: float) -> None: ...

    @abstractmethod
    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here, so that it must not send a
        request.
        """

    @abstractmethod
    def after_fork(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _connect(self, timeout: float) -> MemberConnection:
        """A connection, logged in: to the leader if it is found quickly, otherwise to any member that
        answers.
        """
        began = time.monotonic()
        until = began + timeout
        if self._companion is not None and not self._accompanied:
            await self._connect_companion(self._companion, timeout)
            self._accompanied = True
        connection = await self._found(until)
        try:
            if self._credentials.missing:
                await self._log_in_once(
                    connection, max(MIN_REQUEST_S, until - time.monotonic()), self._credentials.number
                )
        except BaseException:
            connection.end("logging in failed")
            raise
        self.took = time.monotonic() - began
        self.on_connected(connection)
        return connection

    async def _found(self, until: float) -> MemberConnection:
        endpoints = self.address.endpoints
        if len(endpoints) == 1:
            return await self._found_alone(endpoints[0], until)
        order = [(self._first + n) % len(endpoints) for n in range(len(endpoints))]
        search = _Search(self._cluster)
        error: InterlockError = unreachable(self.address.label, "no time was left for it")
        took = 0.0
        try:
            for n, number in enumerate(order):
                began = time.monotonic()
                share = (until - began) / (len(order) - n)
                if search.connection is not None:
                    share = min(share, MAX_SEARCH_S, max(0.02, SEARCH_SLOWDOWN * took))
                if share <= 0:
                    break
                try:
                    connection, status = await self._greeted(endpoints[number], share)
                except InterlockError as failed:
                    error = failed
                    continue
                took = took or time.monotonic() - began
                search.saw(connection, status, number, is_last=n == len(order) - 1)
                # The keeper's first connection looks at all members: nobody else might ever ask the others.
                looks_at_all = self.for_keeper and not self._cluster and took <= MAX_NEAR_S
                if search.leads and search.is_known and not looks_at_all:
                    break
        except BaseException:
            search.end("interrupted")
            raise
        if search.connection is None:
            if isinstance(error, StoreUnavailable):
                raise nobody(self.address.label, self.address.hosts, error) from None
            raise error
        self._first, self._cluster = search.number, search.cluster
        return search.connection

    async def _found_alone(self, endpoint: Endpoint, until: float) -> MemberConnection:
        """A connection to a single address.

        If the member there knows no leader, or says nothing, another one may be behind the next connection.
        How soon a member must answer is known only after a connection that succeeded.
        """
        tries = 0
        while True:
            tries += 1
            began = time.monotonic()
            left = max(MIN_REQUEST_S, until - began)
            share = min(left, max(MIN_TRY_S, SEARCH_SLOWDOWN * self.took)) if self.took else left
            try:
                connection, status = await self._greeted(endpoint, share)
            except StoreUnavailable as error:
                now = time.monotonic()
                if now >= began + share and now + PAUSE_S < until:
                    continue
                raise nobody(self.address.label, self.address.hosts, error) from None
            if status.leader or tries == BEHIND or time.monotonic() >= until:
                self._cluster = status.cluster
                return connection
            connection.end("it knows no leader")

    async def greet(self, endpoint: Endpoint, timeout: float) -> tuple[MemberConnection, StatusAnswer]:
        """A connection to this member and no other, logged in, that the caller ends."""
        until = time.monotonic() + timeout
        connection, status = await self._greeted(endpoint, timeout)
        try:
            if self._credentials.missing:
                left = max(MIN_REQUEST_S, until - time.monotonic())
                await self._log_in_once(connection, left, self._credentials.number)
        except BaseException:
            connection.end("logging in failed")
            raise
        return connection, status

    async def _greeted(self, endpoint: Endpoint, timeout: float) -> tuple[MemberConnection, StatusAnswer]:
        """A new connection, and what its member says of itself: that it is etcd, and who leads."""
        began = time.monotonic()
        hint = "for TLS" if self.address.tls is not None else "not for TLS (etcds://)"
        connection = await self._open(endpoint, timeout)
        try:
            probe = connection.post(
                messages.KEEP_ALIVE, _of_no_lease()
            )  # answered beside the status: it costs no time
            status = await self._status(connection, began + timeout)
            await self._check_no_proxy(connection, probe, began + timeout)
        except Broken as error:
            connection.end("no greeting")
            raise Advised(
                f"{connection.label}: cannot connect: {error.args[0]}; "
                f"is it etcd's port for clients, and {hint}?"
            ) from None
        except BaseException:
            connection.end("no greeting")
            raise
        connection.term = status.term
        check_version(connection.label, status.version)
        return connection, status

    async def _check_no_proxy(self, connection: MemberConnection, probe: Call, until: float) -> None:
        """Refuse etcd's own proxy. It answers keep-alives when it likes, and some reads from memory, so
        nothing that it says proves anything.

        It gives itself away at once: it cancels a keep-alive that no second one can follow, which a member
        answers.
        """
        if probe.status is None or CANCELLED not in probe.status.text:
            return
        try:  # once more: a member that is just being stopped says so, too
            await connection.call(
                messages.KEEP_ALIVE, _of_no_lease(), max(MIN_REQUEST_S, until - time.monotonic())
            )
        except Refused as error:
            if CANCELLED in str(error):
                raise a_proxy(connection.label) from None

    async def _status(self, connection: MemberConnection, until: float) -> StatusAnswer:
        """From etcd 3.5.28 on, where users have passwords, only root may ask for it.

        Then another answer tells a part of it.
        """
        logins, method, request = 0, messages.STATUS, b""
        while True:
            token, asked = self._credentials.number, time.monotonic()
            left = max(MIN_REQUEST_S, until - asked)
            try:
                data = await connection.call(method, request, left)
            except NotAuthenticated as error:
                logins += _counts(error, connection, until - asked)
                await self.log_in_again(connection, error, left, logins, token)
            except Denied:
                if method != messages.STATUS:
                    raise
                method, request = messages.TIME_TO_LIVE, messages.of_lease(NO_LEASE)
            else:
                connection.least = min(MAX_ADDED_ROUND_TRIP_S, 2 * (time.monotonic() - asked))
                if method == messages.STATUS:
                    return StatusAnswer(data)
                return StatusAnswer.from_header(messages.LeaseAnswer(data).header)

    async def log_in_again(
        self, connection: MemberConnection, error: Exception, timeout: float, logins: int, token: int
    ) -> None:
        """Get another token after a call with this one was refused; `StoreUnfit` if that has been of no
        use.
        """
        if logins > MAX_LOGINS or not self._credentials.user:
            raise _no_login(connection.label, error) from None
        self._credentials.forget(token)
        await self._log_in_once(connection, timeout, token)

    async def _log_in_once(self, connection: MemberConnection, timeout: float, token: int) -> None:
        """Log in, or wait for another caller that does: return once there is a newer token than this one."""
        credentials, until = self._credentials, time.monotonic() + timeout
        while credentials.number == token:
            now = time.monotonic()
            if now >= until:
                raise timeout_error(connection.label, timeout)
            if credentials.take_lead(now, until - now):
                try:
                    await self._log_in(connection, until - now)
                finally:
                    credentials.finished()
                return
            await self.pause(LOGIN_PAUSE_S)

    async def _log_in(self, connection: MemberConnection, timeout: float) -> None:
        credentials = self._credentials
        body = messages.authenticate(credentials.user, credentials.password)
        try:
            credentials.accept(messages.token_of(await connection.call(messages.AUTHENTICATE, body, timeout)))
        except NotAuthenticated as error:
            raise _no_login(connection.label, error) from None
        except StoreUnfit as error:
            if "authentication is not enabled" not in str(error):
                raise


class _Search:
    """What the members say that are asked one after the other, and the connection to the best of them.

    All must be of one cluster. Two clusters that one URL names know nothing of each other's locks. Whoever
    finds another cluster than before goes on asking: if nobody is there of the former one, it was replaced.
    """

    def __init__(self, known: int) -> None:
        self.connection: MemberConnection | None = None
        self.number = 0  # of its endpoint
        self.leads = False
        self.cluster = 0
        self._known, self._label = known, ""

    @property
    def is_known(self) -> bool:
        """Whether they are of the cluster that was used before, if there was one."""
        return self._known in (0, self.cluster)

    def saw(self, connection: MemberConnection, status: StatusAnswer, number: int, *, is_last: bool) -> None:
        """Keep the connection if it is to the leader, or to the first member that knows one."""
        if self.cluster and status.cluster not in (0, self.cluster):
            connection.end("it is of another cluster")
            raise two_clusters(self._label, connection.label)
        if not self.cluster:
            self.cluster, self._label = status.cluster, connection.label
        leads = status.leader == status.member
        if leads or (self.connection is None and (status.leader or is_last)):
            self.end("another member leads")
            self.connection, self.number, self.leads = connection, number, leads
        else:
            connection.end("another member is used")

    def end(self, why: str) -> None:
        if self.connection is not None:
            self.connection.end(why)


def _of_no_lease() -> bytes:
    """The request for a lease that nobody has: 62 random bits."""
    return messages.of_lease(secrets.randbits(62) | 1)


def _nothing(connection: MemberConnection) -> None:
    """Do nothing with a new connection."""


def _counts(error: NotAuthenticated, connection: MemberConnection, left: float) -> bool:
    """Whether a refusal counts against the login.

    An administrator may change users and roles as often as he likes: then there is no bound but the time.
    """
    if not isinstance(error, OldRevision):
        return True
    if left <= PAUSE_S:
        raise Refused(f"{connection.label}: users or roles change again and again ({error})")
    return False


def _no_login(label: str, error: Exception) -> StoreUnfit:
    return StoreUnfit(
        f"{label}: the server wants a user and a password ({error}); write etcd://user:password@host"
    )
