"""Creates the tables and functions when they are missing and the user may; otherwise says what to do."""

from __future__ import annotations

import errno
from typing import Any, Protocol

from interlock.backends.sql.dialect import Again, NotInstalled
from interlock.backends.sql.postgresql.errors import unfit
from interlock.backends.sql.postgresql.schema import FUNCTIONS, VERSION, Schema
from interlock.errors import StoreUnfit


class Connection(Protocol):
    async def query(self, sql: bytes, until: float) -> list[list[Any]]: ...


async def install(connection: Connection, schema: Schema, label: str, until: float) -> None:
    """Create what is missing. Safe when many do it at once; nothing is changed if everything is there."""
    version = await _version(connection, schema, until)
    if version is not None and version > VERSION:
        raise unfit(
            f"{label}: schema {schema.schema} was made by a later interlock (version {version}, this one "
            f"knows {VERSION}); upgrade interlock, or choose another schema with ?schema="
        )
    if version == VERSION and await _complete(connection, schema, until):
        return
    try:
        await connection.query(schema.script().encode(), until)
    except StoreUnfit as error:
        if error.errno != errno.EACCES:
            raise
        said = str(error).partition("; an owner")[0]
        raise unfit(
            f"{said}; this user may not create the tables of interlock: have somebody run the output of "
            "`interlock sql URL`, once",
            errno.EACCES,
        ) from None
    except NotInstalled as error:  # the script itself met something that is missing
        raise unfit(str(error)) from None


async def _version(connection: Connection, schema: Schema, until: float) -> int | None:
    """The version that is installed; None if there is none. Raises `StoreUnfit` if this user may not ask."""
    try:
        ((number,),) = await connection.query(f"select version from {schema.name('meta')}".encode(), until)
    except NotInstalled:
        return None
    except Again:
        return None
    return int(number)


async def _complete(connection: Connection, schema: Schema, until: float) -> bool:
    """Whether all functions are there."""
    names = ", ".join("'" + schema.name(name).replace("'", "''") + "'" for name in FUNCTIONS)
    ((found,),) = await connection.query(
        f"select count(to_regproc(n)) from unnest(array[{names}]) n".encode(), until
    )
    return int(found) == len(FUNCTIONS)
