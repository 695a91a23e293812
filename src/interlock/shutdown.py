"""Ending in good order on a signal: what is held is given back before the process goes.

A signal can strike the main thread in the middle of interlock's own work: inside a guard, inside a
transaction, with a grant in hand that nobody has noted yet. Nothing could be given back from there: other
threads would wait for that guard as long as the main thread stands in the handler. So the handler lets it
go on to the end of that work, or until it waits.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from interlock import clock, native
from interlock._runtime.lifetimes import call_at_rest, give_back_everything

AGAIN = 0.005  # seconds until the main thread is looked at again

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_APART = ("cli", "lab", "testing")  # programs of ours: for the rest of the package they are users
_WAITING = ("wait", "sleep")  # nobody waits inside a guard


def release_on_signal(*signals: int, timeout: float = 5.0) -> None:
    """Give back every lease of this process, within `timeout` seconds, when one of `signals` comes.

    Then do what the signal would have done before: call the handler that was there, or end the process.
    SIGTERM if none is named. Call it from the main thread, once, at the start of the program. Without it a
    process killed by SIGTERM leaves its leases to lapse by themselves.
    """
    for number in signals or (signal.SIGTERM,):
        signal.signal(number, _Ending(signal.getsignal(number), timeout))


class _Ending:
    """The handler of one signal."""

    def __init__(self, before: object, timeout: float) -> None:
        self._before = before
        self._timeout = timeout
        self._until: float | None = None  # set while it waits for the main thread's work to end
        self._caller: threading.Thread | None = None
        self._ending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            return  # called once too often: see _call_again
        if self._until is None:
            self._until = clock.now() + self._timeout
            if _at_work(frame):
                call_at_rest(lambda: self._at_rest(number))
                self._caller = native.Thread(target=self._call_again, args=(number,), daemon=True)
                self._caller.start()
        if not _at_work(frame) or clock.now() >= self._until:
            self._end(number, frame)

    def _at_rest(self, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self._end(number, None)

    def _call_again(self, number: int) -> None:
        """The main thread may wait from here on, or run an event loop, and then come to no end."""
        main = threading.main_thread().ident
        while self._until is not None:
            time.sleep(AGAIN)
            if main is not None and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, number)  # to the main thread itself: that ends its waiting
            else:
                signal.raise_signal(number)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        call_at_rest(None)
        left, self._until = max(0.1, (self._until or 0.0) - clock.now()), None
        if self._caller is not None:
            self._caller.join(1.0)  # from here on nobody calls but those who mean it
            self._caller = None
        # On a thread of its own: after so long the main thread may still be inside a guard this needs.
        worker = native.Thread(target=give_back_everything, args=(left,), daemon=True)
        worker.start()
        worker.join(left + 0.5)
        self._ending = False
        if callable(self._before):
            self._before(number, frame)
        elif self._before is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _at_work(frame: FrameType | None) -> bool:
    """Whether what was struck is interlock's own work; its waits, and a user's code it calls, are not."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            part = file[len(_PACKAGE) :].split(os.sep)[0]
            return part not in _APART and frame.f_code.co_name not in _WAITING
        if not file.startswith(_STANDARD) or "site-packages" in file:
            return False
        frame = frame.f_back
    return False
