"""One connection to PostgreSQL that runs steps: libpq through psycopg, with waits of our own.

psycopg's own calls have no deadline, and its layer of cursors and types costs as much as a step. So a
connection sends a statement by libpq, waits for the socket, and reads the answer; blocking and asyncio differ
only in how they wait.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from interlock._support import standard_streams
from interlock._support.wording import duration
from interlock.backends.sql import steps
from interlock.backends.sql.dialect import Again, NotInstalled
from interlock.backends.sql.postgresql import errors, installing
from interlock.backends.sql.postgresql.address import Address, Server
from interlock.backends.sql.postgresql.statements import Statement, Values
from interlock.backends.sql.steps import Rows
from interlock.errors import InterlockError, StoreUnavailable

OK, BAD = 0, 1  # ConnStatus
POLLING_FAILED, POLLING_READING, POLLING_WRITING, POLLING_OK = 0, 1, 2, 3
TUPLES_OK, COMMAND_OK, EMPTY = 2, 1, 0  # ExecStatus
IDLE = 0  # TransactionStatus
# A transaction in which our statements mean what they say, whatever the settings of the session are.
OUR_TRANSACTION = (
    b"begin isolation level read committed; set local client_encoding to 'UTF8'; set local array_nulls to on"
)

ROLE = b"select current_setting('role'), quote_ident(current_setting('role'))"


class Waits(Protocol):
    """How a connection waits for its socket."""

    async def readable(self, descriptor: int, timeout: float) -> bool: ...
    async def writable(self, descriptor: int, timeout: float) -> bool: ...
    async def resolve(
        self, hosts: Sequence[str], timeout: float
    ) -> list[list[str]]:  # the addresses of each host
        ...


class BlockingWaits:
    """Waits on the calling thread."""

    async def readable(self, descriptor: int, timeout: float) -> bool:
        return _poll(descriptor, select.POLLIN, timeout)

    async def writable(self, descriptor: int, timeout: float) -> bool:
        return _poll(descriptor, select.POLLOUT, timeout)

    async def resolve(self, hosts: Sequence[str], timeout: float) -> list[list[str]]:
        from interlock.backends.sql import resolver

        return resolver.addresses(hosts, timeout)


def _poll(descriptor: int, event: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout * 1000 + 0.5 if timeout > 0 else 0))  # rounded up; 0 does not wait at all


# Round trips that a step has at least, however little time is left: a distant server cannot answer sooner.
MIN_ROUND_TRIPS = 3
MAX_ROUND_TRIPS_S = 1.0  # seconds that these may take at most
HUNG_TIMEOUT_S = 1.0  # seconds for a server that hung a moment ago: others may become ready meanwhile

T = TypeVar("T")


class PostgresConnection:
    """One connection, with its own waits. See `dialect.Connection`."""

    __slots__ = (
        *(
            "__weakref__",
            "_address",
            "_label",
            "_pgconn",
            "_prepared",
            "_resets",
            "_role",
            "_statements",
            "_trip",
            "_waits",
        ),
        *("direct",),
    )

    def __init__(self, address: Address, statements: dict[str, Statement], waits: Waits) -> None:
        self._address = address
        self._label = address.label
        self._statements = statements
        self._waits = waits
        self._pgconn: Any = None
        self._prepared: set[str] = set()
        self._resets = False  # a setting of this session changes what our statements mean: see `run`
        self._role = b""  # see `Address.role`; a connection of the user's is in its role already
        self._trip = 0.0  # seconds that the quickest answer has taken
        self.direct = (
            False  # whether no pooler stands between us and the server: only then statements are prepared
        )

    def adopt(self, pgconn: Any) -> None:
        """Use a connection of the user, through a path that nobody knows: nothing is prepared on it."""
        self._pgconn = pgconn
        # In another encoding our bytes would be other letters, and so the names of other locks.
        self._resets = pgconn.parameter_status(b"client_encoding") != b"UTF8"

    @property
    def pgconn(self) -> Any:
        return self._pgconn

    @property
    def driver_error(self) -> type[Exception]:
        return self._address.driver_error

    # ---- connecting --------------------------------------------------------------------

    async def open(self, timeout: float) -> None:
        try:
            until = time.monotonic() + timeout
            await self._first_of(self._address.servers(), self._connect_to, until)
        except BaseException:
            self.discard()
            raise

    async def _first_of(
        self, choices: Sequence[T], connect: Callable[[T, float], Awaitable[None]], until: float
    ) -> None:
        """Connect to the first of several choices that can be reached; each has an equal share of the time
        that is left.
        """
        failures: list[StoreUnavailable] = []
        for tried, choice in enumerate(choices):
            now = time.monotonic()
            try:
                await connect(choice, now + (until - now) / (len(choices) - tried))
                return
            except StoreUnavailable as error:  # and not `StoreUnfit`, such as a wrong password
                self.discard()
                failures.append(error)
        raise errors.none_reached(self._label, failures)

    async def _connect_to(self, server: Server, until: float) -> None:
        if self._address.hung(server):
            until = min(until, time.monotonic() + HUNG_TIMEOUT_S)
        try:
            addresses = [server.hostaddr]
            if server.unresolved:
                left = until - time.monotonic()
                (addresses,) = await self._waits.resolve([server.host], max(0.001, left))
            await self._first_of(addresses, partial(self._connect, server), until)
        except StoreUnavailable:
            if time.monotonic() >= until:
                self._address.note_hung(server)
            raise

    async def _connect(self, server: Server, address: str, until: float) -> None:
        timeout = until - time.monotonic()
        standard_streams.occupy()
        pgconn = self._pgconn = self._address.pq.PGconn.connect_start(self._address.conninfo(server, address))
        while True:
            if pgconn.status == BAD:
                raise errors.connect_error(self._label, self._message())
            status = pgconn.connect_poll()
            if status == POLLING_OK:
                break
            if status == POLLING_FAILED:
                raise errors.connect_error(self._label, self._message())
            left = until - time.monotonic()
            wait = self._waits.readable if status == POLLING_READING else self._waits.writable
            if left <= 0 or not await wait(pgconn.socket, left):
                where = ":".join(filter(None, (server.host or address, server.port)))
                raise errors.connect_error(
                    self._label, f"no connection to {where} within {duration(timeout)}"
                )
        pgconn.nonblocking = 1
        await self._greet(until)

    def _message(self) -> str:
        return str(self._pgconn.error_message.decode("utf-8", "replace"))

    async def _greet(self, until: float) -> None:
        """Learn what is between us and the server.

        A pooler shows itself: the process named at connect is not the server's own.
        """
        if (encoding := self._pgconn.parameter_status(b"server_encoding")) not in (b"UTF8", None):
            raise errors.unfit(
                f"{self._label}: the database has the encoding {encoding.decode()}; interlock needs UTF8"
            )
        asked = time.monotonic()
        ((pid, isolation, nulls, altered),) = await self.query(
            b"select pg_backend_pid(), current_setting('default_transaction_isolation'), "
            b"current_setting('array_nulls'), (" + self._address.schema.altered.encode() + b")",
            until,
        )
        if altered is not None:
            raise errors.unfit(
                f"{self._label}: the table {altered.decode()}: what is written there may be dropped or "
                "changed, and then two hold one lock; undo that, or name another schema with ?schema="
            )
        self._trip = time.monotonic() - asked
        self.direct = int(pid or b"0") == self._pgconn.backend_pid
        self._role = self._address.role
        self._resets = isolation != b"read committed" or nulls != b"on" or bool(self._role)

    async def learn_role(self, until: float) -> None:
        """Have our own connections take the role that this one was set to, because another one may lack
        its rights.
        """
        ((role, quoted),) = await self.query(ROLE, until)
        self._address.role = b"" if role == b"none" or quoted is None else b"; set local role " + quoted

    # ---- steps ---------------------------------------------------------------------------

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        statement = self._statements[step]
        parameters = statement.pack(args)
        asked = time.monotonic()
        until = asked + max(timeout, min(MAX_ROUND_TRIPS_S, MIN_ROUND_TRIPS * self._trip))
        if self._resets:
            return statement.unpack(await self._run_in_ours(statement, parameters, until))
        try:
            values = await self._run(step, statement, parameters, until)
            self._trip = min(self._trip, time.monotonic() - asked)
            if step == steps.EXAMINE:
                values = [*values, [b"direct", b"on" if self.direct else b"off"]]
            return statement.unpack(values)
        except _OtherLevel:
            self._resets = True
            return statement.unpack(await self._run_in_ours(statement, parameters, until))

    async def _run(
        self, step: str, statement: Statement, parameters: list[bytes | None], until: float
    ) -> Values:
        pgconn = self._pgconn
        if not self.direct:
            return await self._exchange(lambda: pgconn.send_query_params(statement.sql, parameters), until)
        if step not in self._prepared:
            await self._exchange(lambda: pgconn.send_prepare(statement.name, statement.sql), until)
            self._prepared.add(step)
        return await self._exchange(lambda: pgconn.send_query_prepared(statement.name, parameters), until)

    async def _run_in_ours(
        self, statement: Statement, parameters: list[bytes | None], until: float
    ) -> Values:
        """The same in a transaction with settings of its own: those of the user's session are others."""
        await self.query(OUR_TRANSACTION + self._role, until)
        try:
            values = await self._exchange(
                lambda: self._pgconn.send_query_params(statement.sql, parameters), until
            )
        except (Again, NotInstalled):
            await self.query(b"rollback", until)
            raise
        await self.query(b"commit", until)
        return values

    async def query(self, sql: bytes, until: float) -> Values:
        """Run plain SQL, also several statements; the rows of the last one that has any."""
        return await self._exchange(lambda: self._pgconn.send_query(sql), until)

    async def _exchange(self, send: Callable[[], None], until: float) -> Values:
        """Send, and read all results. Raises the error of the first one that failed."""
        began = time.monotonic()
        pgconn, waits = self._pgconn, self._waits
        try:
            send()
            while pgconn.flush():
                left = until - time.monotonic()
                if left <= 0 or not await waits.writable(pgconn.socket, left):
                    raise errors.late(self._label, until - began)
            values: Values = []
            failure: InterlockError | None = None
            while True:
                while pgconn.is_busy():
                    left = until - time.monotonic()
                    if left <= 0 or not await waits.readable(pgconn.socket, left):
                        raise errors.late(self._label, until - began)
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    break
                if result.status == TUPLES_OK:
                    values = [
                        [result.get_value(row, column) for column in range(result.nfields)]
                        for row in range(result.ntuples)
                    ]
                elif result.status > TUPLES_OK and failure is None:
                    failure = self._failure(result)
        except self._address.driver_error as error:
            raise errors.lost(self._label, str(error)) from None
        if failure is not None:
            raise failure
        if pgconn.status == BAD:
            raise errors.lost(self._label, self._message())
        return values

    def _failure(self, result: Any) -> InterlockError:
        state = (result.error_field(67) or b"").decode()  # DiagnosticField.SQLSTATE is 'C'
        message = (result.error_field(77) or b"").decode("utf-8", "replace")  # MESSAGE_PRIMARY is 'M'
        if state == errors.ISOLATION:
            return _OtherLevel(message)
        if not state:
            return errors.lost(
                self._label, message or result.error_message.decode("utf-8", "replace") or "no answer"
            )
        return errors.state_error(self._label, state, message)

    async def install(self, timeout: float) -> None:
        await installing.install(self, self._address.schema, self._label, time.monotonic() + timeout)

    # ---- the end -------------------------------------------------------------------------

    def stale(self) -> bool:
        """Something to read on an idle connection is its end, or words that we did not ask for."""
        pgconn = self._pgconn
        try:
            if not _poll(pgconn.socket, select.POLLIN, 0.0):
                return bool(pgconn.status != OK)
            pgconn.consume_input()
            return bool(pgconn.status != OK or pgconn.transaction_status != IDLE)
        except (self._address.driver_error, OSError, ValueError):
            return True

    def discard(self) -> None:
        pgconn, self._pgconn = self._pgconn, None
        if pgconn is not None:
            try:
                if pgconn.transaction_status != IDLE and pgconn.status == OK:
                    _reset(pgconn.socket)
                pgconn.finish()
            except (self._address.driver_error, OSError, ValueError):
                pass  # it is closed already

    def abandon(self) -> None:
        self._pgconn = None  # libpq's object closes it only in the process that made it


def _reset(descriptor: int) -> None:
    """Shut the socket down: nobody waits for what it has not sent yet."""
    try:
        with socket.socket(fileno=descriptor) as sock:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            finally:
                sock.detach()
    except OSError:
        pass


class _OtherLevel(Again):
    """The session has another isolation level."""
