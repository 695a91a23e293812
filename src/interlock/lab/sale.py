"""A flash sale from a client's side: six buyers in each process, who buy until nothing is left.

Buying is always the same: look at the stock, have the purchase checked, write the new stock. What differs is
what stands around it, and that is the scenario's. Every twelfth check hangs for longer than the ttl.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from interlock._support import clock
from interlock.errors import LeaseLost, StaleToken
from interlock.lab.worker import Me

STOCK = 60
PROCESSES = 4
BUYERS = 6  # in each process
CHECK_S = 0.003  # seconds that a check takes
HANGS_EVERY = 12  # checks
HANGS_FOR = 1.25  # ttls

BEFORE_THE_WRITE = "before the write"
OVER = "over"

KEYS = ("stock", "orders", "checks", "waits", "open", "lock")
"""What a sale keeps on Redis; the director removes it before the next."""


class SoldOut(Exception):
    """Nothing is left, or the sale was closed."""


class Sale:
    """The shop as one process of buyers sees it; `open` sells everything in one way."""

    def __init__(self, me: Me) -> None:
        self.me, self.client = me, me.interlock()
        self.server: Any = me.redis()
        self._waits: list[float] = []
        self._mine = threading.local()
        me.at("start")

    @property
    def px(self) -> int:
        """The ttl in milliseconds, as Redis wants it."""
        return int(self.me.ttl * 1000)

    def open(self, strategy: str, buy: Callable[[], None]) -> None:
        """When the director says so, let all buyers of this process buy until nothing is left."""
        self._strategy = strategy
        self.me.at(strategy)
        self._waits.clear()
        buyers = [threading.Thread(target=self._shop, args=(buy,), daemon=True) for _ in range(BUYERS)]
        for buyer in buyers:
            buyer.start()
        for buyer in buyers:
            buyer.join()
        if self._waits:
            self.server.rpush("waits", *self._waits)
        self.me.at(f"{strategy}: {OVER}")

    def under(self, lock: Callable[[], AbstractContextManager[Any]]) -> Callable[[], None]:
        """Buy under a lock, by numbers that were read before they are written."""

        def buy() -> None:
            with lock():
                left = self.look()
                self.check()
                self.sell(left - 1)

        return buy

    def look(self) -> int:
        """How many are left."""
        left, is_open = self.server.mget("stock", "open")
        if not is_open or int(left) <= 0:
            raise SoldOut
        return int(left)

    def check(self) -> None:
        """Have the purchase checked: by the bank, by the stock room. One of twelve checks hangs."""
        began = clock.now()
        hangs = int(self.server.incr("checks")) % HANGS_EVERY == 0
        time.sleep(HANGS_FOR * self.me.ttl if hangs else CHECK_S)
        self.me.at(f"{self._strategy}: {BEFORE_THE_WRITE}")  # one buyer is stopped here
        self._mine.checked = clock.now() - began

    def sell(self, left: int) -> None:
        """Write down the new stock and the order, both at once."""
        both: Any = self.server.pipeline(transaction=True)
        both.set("stock", left).rpush("orders", self.me.name).execute()

    def _shop(self, buy: Callable[[], None]) -> None:
        while True:
            began, self._mine.checked = clock.now(), 0.0
            try:
                buy()
            except SoldOut:
                return
            except (LeaseLost, StaleToken):
                continue  # nothing was sold, or it is known too late that nothing should have been
            finally:
                self._waits.append(clock.now() - began - self._mine.checked)
