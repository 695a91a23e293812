"""Renders the SQL files for the prefix that the user chooses, and installs them where the user may."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache

from interlock._support.package_text import sections, text_beside
from interlock.backends.sql.dialect import Again
from interlock.backends.sql.steps import Rows
from interlock.errors import InvalidSetting, StoreUnfit

VERSION = 2  # of the procedures; tables.sql says which tables they share with earlier ones
DEFAULT_PREFIX = "interlock_"
# Characters of a prefix: a name has at most 64, and so has that of the lock which creators take.
MAX_PREFIX_CHARACTERS = 40
CLOCK = "utc_timestamp(6)"
SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
"""The mode under which procedures are created, and which they keep, whatever mode the sessions have that
call them.
"""
COLLATION = "utf8mb4_general_ci"
"""The same for texts in them: if it were of UTF-16, the server would refuse their states of errors."""
NO_LIMIT = 2**64 - 1
"""The rows of a `select`, as `sql_select_limit` is by default."""

# MariaDB 12 has words for it, earlier ones and MySQL a number.
REFUSE_IF_READ_ONLY = (
    "if concat(@@global.read_only) not in ('0', 'OFF') then "
    "signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'read_only is on'; end if;"
)

CREATE_AGAIN = "create /*M! or replace */ procedure /*!80029 if not exists */"

Execute = Callable[[str], Awaitable[Rows]]
"""Runs one statement and returns its rows."""


@cache
def _sections(file: str) -> dict[str, str]:
    """The statements of one file by name, in the file's order, without their headers."""
    return sections(text_beside(__spec__, file))


def _account(user: str) -> str:
    """An account as SQL takes it literally: `app` stands for 'app'@'%', and `app@10.0.0.%` names a host."""
    name, _, host = user.partition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (name, host or "%"))


def _settings(mode: str, collation: str, limit: int) -> str:
    return f"set sql_mode = '{mode}', collation_connection = '{collation}', sql_select_limit = {limit}"


class Schema:
    """The names of one installation: a prefix before each table and procedure of the database that the URL
    names.

    `clock` is an expression for the present instant; tests set one that they can move.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX, clock: str = CLOCK) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix) or len(prefix) > MAX_PREFIX_CHARACTERS:
            raise InvalidSetting(
                f"prefix={prefix}: write at most {MAX_PREFIX_CHARACTERS} letters, digits and underscores, "
                "and no digit first"
            )
        self.prefix = prefix
        self._clock = clock
        self._call = f"call {prefix}v{VERSION}_"

    def call(self, procedure: str, arguments: str) -> str:
        return f"{self._call}{procedure}({arguments})"

    def _render(self, text: str) -> str:
        text = text.replace("interlock_v1_", f"interlock_v{VERSION}_").replace("@version@", str(VERSION))
        text = text.replace("@refuse_if_read_only@", REFUSE_IF_READ_ONLY)
        return text.replace("interlock_", self.prefix).replace(CLOCK, self._clock)

    def tables(self) -> list[str]:
        """The statements that create the tables, each of which may be repeated."""
        return [self._render(text) for text in _sections("tables.sql").values()]

    def procedures(self) -> dict[str, str]:
        """The statements that create the procedures, by the full names of these."""
        return {
            f"{self.prefix}v{VERSION}_{name}": self._render(text)
            for name, text in _sections("procedures.sql").items()
        }

    def script(self) -> str:
        """Everything that creates tables and procedures, for the `mysql` or `mariadb` command.

        It may be run again while programs work. To drop a procedure would drop the rights that were granted
        on it, too, and programs would meet the gap. MariaDB replaces it and keeps the rights; MySQL, from
        8.0.29 on, leaves it, because another text has another name.
        """
        lines = [f"set @interlock_sql_mode = @@sql_mode, sql_mode = '{SQL_MODE}';"]
        lines += [f"{statement};" for statement in self.tables()]
        lines.append("delimiter //")
        for text in self.procedures().values():
            lines.append(f"{text.replace('create procedure', CREATE_AGAIN, 1)} //")
        return "\n".join([*lines, "delimiter ;", "set sql_mode = @interlock_sql_mode;", ""])

    def grants(self, user: str) -> str:
        """The rights of a program that may not create anything itself: to run the procedures, and nothing
        else.
        """
        return "\n".join(
            f"grant execute on procedure {name} to {_account(user)};" for name in self.procedures()
        )

    async def install(self, execute: Execute, label: str, seconds: float) -> None:
        """Create what is missing. DDL commits by itself here, so those who do it take turns by a named lock
        of the server.

        Raises `Again` if somebody else is at it for longer than `seconds`, and `StoreUnfit` if the tables are
        of a later version.
        """
        lock = f"interlock.{self.prefix}"
        ((turn,),) = await execute(f"select get_lock('{lock}', {max(0, int(seconds) - 1)}) limit 1")
        if turn != 1:
            raise Again(f"{label}: somebody else is creating the tables of interlock")
        try:
            await self._create(execute, label)
        finally:
            await execute(f"do release_lock('{lock}')")

    async def _create(self, execute: Execute, label: str) -> None:
        # With a limit of its own, which counts more than that of the session.
        asked = "select @@sql_mode, @@collation_connection, @@sql_select_limit limit 1"
        ((mode, collation, limit),) = await execute(asked)
        await execute(_settings(SQL_MODE, COLLATION, NO_LIMIT))
        try:
            for statement in self.tables():
                await execute(statement)
            for (found,) in await execute(f"select version from {self.prefix}meta"):
                if found > VERSION:
                    raise StoreUnfit(
                        f"{label}: the tables {self.prefix}* are of version {found}, made by a later "
                        f"interlock; this one knows {VERSION}"
                    )
            there = {
                name
                for (name,) in await execute(
                    "select routine_name from information_schema.routines where routine_schema = database()"
                )
            }
            for name, text in self.procedures().items():
                if name not in there:
                    await execute(text)
        finally:
            await execute(_settings(mode, collation, limit))
