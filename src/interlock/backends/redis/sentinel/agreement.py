"""Whether a majority of the sentinels agrees on the master that we use, asked beside the calls that depend on
it.

A master that is cut off together with some of its clients goes on granting and renewing, while the sentinels
on the other side promote a replica. Those clients cannot see that, but they can see that a majority of the
sentinels is out of reach. So nothing that the master says counts once no majority has agreed on it for a ttl.

A question is asked at most once in a renewal interval, on a thread of its own, and nobody waits for the
answer as long as the last one is younger than a ttl.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from interlock._core import timing
from interlock._core.drive import drive
from interlock._core.runtime import Signal
from interlock._support import native
from interlock._support.clock import now
from interlock.backends.kit.runtime import WaitRuntime
from interlock.errors import InterlockError

MIN_AGE_S = 1.0  # seconds: an answer that is younger always suffices, however short a ttl is
MIN_PERIOD_S = MIN_AGE_S / timing.RENEWALS_PER_TTL  # seconds from one question to the next


class AgreementRoute(Protocol):
    """A route that knows when a majority last agreed on its server."""

    @property
    def agreed(self) -> float: ...
    def check(self) -> Coroutine[Any, Any, None]:
        """Ask the sentinels, without suspending; for a plain thread."""
        ...


class Agreement:
    """Asks the sentinels of a route in the background."""

    def __init__(self, route: AgreementRoute) -> None:
        self._route = route
        self.after_fork()

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._asking = False
        self._asked = float("-inf")
        self._waiting: list[Signal] = []

    def inside(self) -> bool:
        return self._mutex._is_owned()

    def fresh(self, ttl: float) -> bool:
        """Whether a majority has agreed so lately that it need not be asked for a lease of this ttl."""
        return now() - self._route.agreed <= max(ttl, MIN_AGE_S) / timing.RENEWALS_PER_TTL

    def recent(self, ttl: float) -> bool:
        """Whether a majority has agreed within the last `ttl` seconds."""
        return now() - self._route.agreed <= max(ttl, MIN_AGE_S)

    async def confirmed(self, ttl: float, runtime: WaitRuntime, timeout: float) -> bool:
        """The same; asks the sentinels if the answer will soon be too old, and waits for them only if it
        is.
        """
        if self.fresh(ttl):
            return True
        age, bound = now() - self._route.agreed, max(ttl, MIN_AGE_S)
        signal = None if age <= bound else runtime.signal()
        if self.ask_soon(signal) and signal is not None:
            await runtime.wait(signal, timeout)
        return now() - self._route.agreed <= bound

    def ask_soon(self, signal: Signal | None = None) -> bool:
        """Have the sentinels asked in the background, and then set the signal; False if they were asked
        just now.
        """
        with self._mutex:
            first = not self._asking
            if first and now() - self._asked < MIN_PERIOD_S:
                return False
            self._asking, self._asked = True, now()
            if signal is not None:
                self._waiting.append(signal)
        if first:
            _in_background(self._ask)
        return True

    def _ask(self) -> None:
        try:
            drive(self._route.check(), nested=True)
        except InterlockError:
            pass  # there is no agreement then, and that is all that counts
        finally:
            with self._mutex:
                self._asking = False
                waiting, self._waiting = self._waiting, []
            for signal in waiting:
                signal.set()


def _in_background(work: Callable[[], None]) -> None:
    try:
        native.run(work)
    except RuntimeError:  # no thread can be started: the caller waits
        work()
