"""One connection to PostgreSQL that runs steps: libpq through psycopg, with waits of our own.

psycopg's own calls have no deadline, and its layer of cursors and types costs as much as a step. So a link sends a statement by
libpq, waits for the socket, and reads the answer; blocking and asyncio differ only in how they wait.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from interlock.backends.sql.dialect import Again, NotInstalled
from interlock.backends.sql.postgresql import errors, installing
from interlock.backends.sql.postgresql.address import Address
from interlock.backends.sql.postgresql.statements import Statement, Values
from interlock.backends.sql.steps import Rows
from interlock.errors import InterlockError

OK, BAD = 0, 1  # ConnStatus
POLLING_FAILED, POLLING_READING, POLLING_WRITING, POLLING_OK = 0, 1, 2, 3
TUPLES_OK, COMMAND_OK, EMPTY = 2, 1, 0  # ExecStatus
IDLE = 0  # TransactionStatus
READ_COMMITTED = b"begin isolation level read committed"


class Waits(Protocol):
    """How a link waits for its socket."""

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
        from interlock.backends.sql.postgresql import resolver

        return resolver.addresses(hosts, timeout)


def _poll(descriptor: int, event: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout * 1000 + 0.5 if timeout > 0 else 0))  # rounded up; 0 does not wait at all


TRIPS = 3  # round trips that a step has at least, however little time is left: a distant server cannot answer sooner,
FARTHEST = 1.0  # but no more than so many seconds


class PostgresLink:
    """One connection, with its own waits. See `dialect.Link`."""

    __slots__ = (
        *(
            "__weakref__",
            "_address",
            "_pgconn",
            "_place",
            "_prepared",
            "_relevel",
            "_statements",
            "_trip",
            "_waits",
        ),
        *("direct",),
    )

    def __init__(self, address: Address, statements: dict[str, Statement], waits: Waits) -> None:
        self._address = address
        self._place = address.place
        self._statements = statements
        self._waits = waits
        self._pgconn: Any = None
        self._prepared: set[str] = set()
        self._relevel = False  # this session's default isolation level is another one: see `run`
        self._trip = 0.0  # seconds that the quickest answer has taken
        self.direct = (
            False  # whether no pooler stands between us and the server: only then statements are prepared
        )

    def adopt(self, pgconn: Any) -> None:
        """Use a connection of the user, through a path that nobody knows: nothing is prepared on it."""
        self._pgconn = pgconn

    @property
    def pgconn(self) -> Any:
        return self._pgconn

    @property
    def driver_error(self) -> type[Exception]:
        return self._address.driver_error

    # ---- connecting --------------------------------------------------------------------

    async def open(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        try:
            await self._connect(until, timeout)
            await self._greet(until)
        except BaseException:
            self.discard()
            raise

    async def _connect(self, until: float, timeout: float) -> None:
        pq = self._address.pq
        hosts = self._address.unresolved()
        known = await self._waits.resolve(hosts, timeout) if hosts else []
        conninfo = self._address.conninfo(dict(zip(hosts, known, strict=True)))
        pgconn = self._pgconn = pq.PGconn.connect_start(conninfo)
        while True:
            if pgconn.status == BAD:
                raise errors.connect_error(self._place, self._message())
            status = pgconn.connect_poll()
            if status == POLLING_OK:
                break
            if status == POLLING_FAILED:
                raise errors.connect_error(self._place, self._message())
            left = until - time.monotonic()
            wait = self._waits.readable if status == POLLING_READING else self._waits.writable
            if left <= 0 or not await wait(pgconn.socket, left):
                raise errors.connect_error(self._place, f"no connection within {timeout:.3g} s")
        pgconn.nonblocking = 1

    def _message(self) -> str:
        return str(self._pgconn.error_message.decode("utf-8", "replace"))

    async def _greet(self, until: float) -> None:
        """Learn what is between us and the server. A pooler shows itself: the process named at connect is not the server's own."""
        if (encoding := self._pgconn.parameter_status(b"server_encoding")) not in (b"UTF8", None):
            raise errors.unfit(
                f"{self._place}: the database has the encoding {encoding.decode()}; interlock needs UTF8"
            )
        asked = time.monotonic()
        ((pid, isolation),) = await self.query(
            b"select pg_backend_pid(), current_setting('default_transaction_isolation')", until
        )
        self._trip = time.monotonic() - asked
        self.direct = int(pid or b"0") == self._pgconn.backend_pid
        self._relevel = isolation != b"read committed"

    # ---- steps ---------------------------------------------------------------------------

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        statement = self._statements[step]
        parameters = statement.pack(args)
        asked = time.monotonic()
        until = asked + max(timeout, min(FARTHEST, TRIPS * self._trip))
        if self._relevel:
            return statement.unpack(await self._run_at_level(statement, parameters, until))
        try:
            values = await self._run(step, statement, parameters, until)
            self._trip = min(self._trip, time.monotonic() - asked)
            return statement.unpack(values)
        except _OtherLevel:
            self._relevel = True
            return statement.unpack(await self._run_at_level(statement, parameters, until))

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

    async def _run_at_level(
        self, statement: Statement, parameters: list[bytes | None], until: float
    ) -> Values:
        """The same in a transaction that sets its own isolation level: the user's sessions begin with another one."""
        await self.query(READ_COMMITTED, until)
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
                    raise errors.late(self._place, until - began)
            values: Values = []
            failure: InterlockError | None = None
            while True:
                while pgconn.is_busy():
                    left = until - time.monotonic()
                    if left <= 0 or not await waits.readable(pgconn.socket, left):
                        raise errors.late(self._place, until - began)
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
            raise errors.lost(self._place, str(error)) from None
        if failure is not None:
            raise failure
        if pgconn.status == BAD:
            raise errors.lost(self._place, self._message())
        return values

    def _failure(self, result: Any) -> InterlockError:
        state = (result.error_field(67) or b"").decode()  # DiagnosticField.SQLSTATE is 'C'
        message = (result.error_field(77) or b"").decode("utf-8", "replace")  # MESSAGE_PRIMARY is 'M'
        if state == errors.ISOLATION:
            return _OtherLevel(message)
        if not state:
            return errors.lost(
                self._place, message or result.error_message.decode("utf-8", "replace") or "no answer"
            )
        return errors.state_error(self._place, state, message)

    async def install(self, timeout: float) -> None:
        await installing.install(self, self._address.schema, self._place, time.monotonic() + timeout)

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
