"""A high-water mark for tokens, kept in the store: for resources that cannot check tokens themselves."""

from __future__ import annotations

from typing import Any

from interlock._core.client import Client
from interlock._core.lease import Lease
from interlock._core.register import Cell
from interlock.errors import StaleToken


class HighWaterMark:
    """Remembers the highest token that was accepted for one resource."""

    def __init__(self, client: Client, name: str) -> None:
        self._cell = Cell(client, "guard", name)
        self.name = self._cell.name

    async def accept(self, presented: Lease | int) -> int:
        """Accept a token at least as high as every one accepted before; raise `StaleToken` otherwise."""
        token = presented.token if isinstance(presented, Lease) else presented
        if isinstance(token, bool) or not isinstance(token, int):
            raise TypeError(f"a token is an int or a lease, not {type(token).__name__}")

        def decide(value: Any) -> tuple[Any, None]:
            if value is not None and value > token:
                raise StaleToken(self.name, token, value)
            return token, None

        await self._cell.change(decide, again=True)
        return token

    async def highest(self) -> int:
        """The highest token accepted so far; 0 when there is none."""
        value, _ = await self._cell.read()
        return int(value or 0)
