"""A high-water mark for tokens, kept in the store: for resources that cannot check tokens themselves."""

from __future__ import annotations

from typing import Any

from interlock._core.client import Client
from interlock._core.lease import Lease
from interlock._core.presented import checked_token, presented
from interlock._core.register import Cell, not_ours
from interlock.errors import StaleToken, Unsupported


class HighWaterMark:
    """Remembers the highest token that was accepted for one resource."""

    def __init__(self, client: Client, name: str) -> None:
        self._cell = Cell(client, "guard", name)
        self.name = self._cell.name

    async def accept(self, lease: Lease | int) -> int:
        """Accept a token at least as high as every one accepted before; raise `StaleToken` otherwise.

        A lease must be held, exclusive and of this resource: only such tokens can be compared.
        """
        if not isinstance(lease, Lease):
            return (await self.raised_to(lease))[0]
        shown = presented(lease)
        if shown.resource != self.name:
            raise Unsupported(
                f"{self.name}: the tokens of {shown.resource} cannot be compared with those of {self.name}; "
                "give the guard the name of the lock"
            )
        return (await self.raised_to(shown.token))[0]

    async def raised_to(self, token: int) -> tuple[int, int]:
        """Accept a token, and return it with the version of the mark, with which the mark can be
        forgotten.
        """
        token = checked_token(token)

        def decide(value: Any) -> tuple[Any, None]:
            if value is not None and self._checked(value) > token:
                raise StaleToken(self.name, token, value)
            return token, None

        _, version = await self._cell.change(decide, again=True)
        return token, version

    async def forget(self, version: int) -> None:
        """Remove the mark, unless it was raised since it had this version."""
        await self._cell.compare_and_set(version, None)

    async def highest(self) -> int:
        """The highest token accepted so far; 0 when there is none."""
        value, _ = await self._cell.read()
        return 0 if value is None else self._checked(value)

    def _checked(self, value: Any) -> int:
        if type(value) is not int:
            raise not_ours(self.name, value)
        return value
