"""Engines and pools of the user, carried into a forked child: parent and child must never use one connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import sqlalchemy

import interlock
import interlock.aio
from tests.forked_child import in_a_child
from tests.patience import PATIENCE


def check_engine(engine: Any, which_connection: str) -> None:
    """Parent and child use a client over one engine; `which_connection` asks the server for its number of a
    connection.
    """

    def number() -> str:
        with engine.connect() as connection:
            return str(connection.execute(sqlalchemy.text(which_connection)).scalar())

    with interlock.connect(engine) as client, client.lock("parents") as lease:
        parents = number()

        def in_child() -> tuple[str, bool]:
            with client.lock("childs", timeout=PATIENCE):
                return number(), client.lock("parents").acquire(blocking=False) is None

        number_there, refused = eval(str(in_a_child(in_child)))
        assert refused
        assert number_there != parents
        lease.renew()
        assert number() == parents


def check_async_engine(make: Callable[[], Any], which_connection: str) -> None:
    """The same with an asyncio engine; the child has an event loop of its own."""

    async def main() -> None:
        engine = make()

        async def number() -> str:
            async with engine.connect() as connection:
                return str((await connection.execute(sqlalchemy.text(which_connection))).scalar())

        async with interlock.aio.connect(engine) as client:
            async with client.lock("parents") as lease:
                parents = await number()

                async def in_child() -> tuple[str, bool]:
                    async with client.lock("childs", timeout=PATIENCE):
                        refused = await client.lock("parents").acquire(blocking=False) is None
                        return await number(), refused

                number_there, refused = eval(str(in_a_child(lambda: asyncio.run(in_child()))))
                assert refused
                assert number_there != parents
                await lease.renew()
                assert await number() == parents
        await engine.dispose()

    asyncio.run(main())


def said_in_a_child(call: Callable[[], object]) -> str:
    """The error of a call in a forked child, with its type."""

    def attempt() -> str:
        try:
            return f"no error: {call()}"
        except BaseException as error:
            return f"{type(error).__name__}: {error}"

    return str(in_a_child(attempt))


FORKS = hasattr(os, "fork")
