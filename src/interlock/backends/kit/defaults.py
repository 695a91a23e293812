"""Defaults for methods of the port that a store may have no use for; all stores take their share of these.

A store whose claims lapse one by one, whose server nobody takes over from, and that has no connection apart
for the keeper writes none of them. A session store overrides `on_session_lost`, a replicated one `on_doubt`,
a store of several parts `part`, and every store with connections `after_fork` and `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

from interlock.errors import Unsupported
from interlock.model import Claim, Granted, Versioned
from interlock.store import IO_TIMEOUT, Store


class StoreDefaults:
    """The optional methods of `interlock.store.Store`, as a store has them that does nothing special."""

    decides_here = False

    def expect_ttl(self, ttl: float, *, at_most: bool) -> None:
        """Nothing to do: each claim has a ttl of its own, and no session bounds it."""

    def claim_idle(self, claim: Claim) -> Granted | None:
        """None: every claim is a question to a server."""
        return None

    def release_alone(self, resource: str, id: str) -> bool:
        """False: so is every release."""
        return False

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Never calls: nobody can take over from this store."""

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        """Never calls: claims lapse one by one."""

    def part(self, resource: str) -> str:
        """The only one."""
        return ""

    def inside(self) -> bool:
        """Never: this store has no critical sections. A store that has a mutex asks it."""
        return False

    def liveness_byte(self) -> tuple[str, int] | None:
        """None: this store does not free the claims of dead processes before they lapse."""
        return None

    def blocking(self) -> Store:
        """Itself: this store is a blocking one. An asyncio store returns its blocking twin."""
        return cast(Store, self)

    def for_keeper(self) -> Store:
        """Itself: nothing that others ask can hold up a renewal."""
        return cast(Store, self)

    def after_fork(self) -> None:
        """Nothing is shared with the parent."""

    async def close(self) -> None:
        """Nothing is open."""


class NoRegisters:
    """The methods of `interlock.store.Register`, as a store has them that keeps none (`Traits.registers`)."""

    no_registers: str
    """Says why there are none, and which store has them."""

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        raise Unsupported(self.no_registers)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        raise Unsupported(self.no_registers)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        raise Unsupported(self.no_registers)
