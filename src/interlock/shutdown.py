"""Ending in good order on a signal: what is held is given back before the process goes."""

from __future__ import annotations

import signal
from types import FrameType

from interlock._runtime.lifetimes import give_back_everything


def release_on_signal(*signals: int, timeout: float = 5.0) -> None:
    """Give back every lease of this process, within `timeout` seconds, when one of `signals` comes.

    Then do what the signal would have done before: call the handler that was there, or end the process.
    SIGTERM if none is named. Call it from the main thread, once, at the start of the program. Without it a
    process killed by SIGTERM leaves its leases to lapse by themselves.
    """
    for number in signals or (signal.SIGTERM,):
        before = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None, before: object = before) -> None:
            from threading import Thread

            # On a thread of its own: the main thread may be inside a guard this needs.
            worker = Thread(target=give_back_everything, args=(timeout,), daemon=True)
            worker.start()
            worker.join(timeout + 0.5)
            if callable(before):
                before(number, frame)
            elif before is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        signal.signal(number, handle)
