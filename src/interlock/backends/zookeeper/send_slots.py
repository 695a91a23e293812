"""Limits how many claims of one client on one name are under way at once: the rest of a crowd wait here for a
slot.

The connection sends requests in the order in which they were given to it. So renewals, reads and releases
would wait behind ten thousand claims, and the claims themselves would be answered later than their callers
wait, be sent again, and delay the others still more.
"""

from __future__ import annotations

from collections import OrderedDict

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.runtime import WaitRuntime
from interlock.store import IO_TIMEOUT

MAX_CLAIMS_SENT = 64
SLOT_LOST_S = 2 * IO_TIMEOUT  # seconds after which a slot counts as given back: its caller was interrupted


class SendSlot:
    """The right to have a claim under way."""

    __slots__ = ("signal", "since")

    def __init__(self, signal: Signal, since: float) -> None:
        self.signal = signal  # set when it is given
        self.since = since


class SendSlots:
    """The slots of one client, by folder."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._given: dict[str, dict[SendSlot, None]] = {}
        self._waiting: dict[str, OrderedDict[SendSlot, None]] = {}

    async def take(self, runtime: WaitRuntime, folder: str, timeout: float) -> SendSlot | None:
        """A slot, which the caller gives back in the end; None if there was none within `timeout` seconds."""
        slot = SendSlot(runtime.signal(), runtime.now())
        with self._mutex:
            given = self._given.setdefault(folder, {})
            if len(given) >= MAX_CLAIMS_SENT:
                for lost in [one for one in given if one.since < slot.since - SLOT_LOST_S]:
                    del given[lost]
            if len(given) < MAX_CLAIMS_SENT:
                given[slot] = None
                return slot
            self._waiting.setdefault(folder, OrderedDict())[slot] = None
        try:
            if await runtime.wait(slot.signal, timeout):
                slot.since = runtime.now()
                return slot
        except BaseException:
            self.give_back(folder, slot)
            raise
        with self._mutex:
            if slot in self._given.get(folder, ()):  # it has come this very moment
                return slot
            self.give_back(folder, slot)
        return None

    def give_back(self, folder: str, slot: SendSlot) -> None:
        """Give back a slot, or end the wait for one; the next waiter has it then."""
        with self._mutex:
            given, waiting = self._given.get(folder, {}), self._waiting.get(folder)
            if waiting is not None:
                waiting.pop(slot, None)
            given.pop(slot, None)
            while waiting and len(given) < MAX_CLAIMS_SENT:
                following, _ = waiting.popitem(last=False)
                given[following] = None
                following.signal.set()
            if not waiting:
                self._waiting.pop(folder, None)
            if not given:
                self._given.pop(folder, None)
