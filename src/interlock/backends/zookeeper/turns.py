"""How many claims of one client on one name are under way at once: the rest of a crowd wait here for their
turn.

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

AT_ONCE = 64
LOST = 2 * IO_TIMEOUT  # seconds after which a turn counts as given back: whoever had it was interrupted


class Turn:
    """The right to have a claim under way."""

    __slots__ = ("signal", "since")

    def __init__(self, signal: Signal, since: float) -> None:
        self.signal = signal  # set when it is given
        self.since = since


class Turns:
    """The turns of one client, by folder."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._given: dict[str, dict[Turn, None]] = {}
        self._waiting: dict[str, OrderedDict[Turn, None]] = {}

    async def take(self, runtime: WaitRuntime, folder: str, timeout: float) -> Turn | None:
        """A turn, which the caller gives back in the end; None if there was none within `timeout` seconds."""
        turn = Turn(runtime.signal(), runtime.now())
        with self._mutex:
            given = self._given.setdefault(folder, {})
            if len(given) >= AT_ONCE:
                for lost in [one for one in given if one.since < turn.since - LOST]:
                    del given[lost]
            if len(given) < AT_ONCE:
                given[turn] = None
                return turn
            self._waiting.setdefault(folder, OrderedDict())[turn] = None
        try:
            if await runtime.wait(turn.signal, timeout):
                turn.since = runtime.now()
                return turn
        except BaseException:
            self.give_back(folder, turn)
            raise
        with self._mutex:
            if turn in self._given.get(folder, ()):  # it has come this very moment
                return turn
            self.give_back(folder, turn)
        return None

    def give_back(self, folder: str, turn: Turn) -> None:
        """End a turn, or the wait for one; the next waiter has it then."""
        with self._mutex:
            given, waiting = self._given.get(folder, {}), self._waiting.get(folder)
            if waiting is not None:
                waiting.pop(turn, None)
            given.pop(turn, None)
            while waiting and len(given) < AT_ONCE:
                following, _ = waiting.popitem(last=False)
                given[following] = None
                following.signal.set()
            if not waiting:
                self._waiting.pop(folder, None)
            if not given:
                self._given.pop(folder, None)
