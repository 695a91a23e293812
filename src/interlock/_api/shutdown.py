"""A signal that ends the process releases its leases first.

A signal can interrupt the main thread in the middle of interlock's own work: while it holds an internal lock
(a mutex), inside a transaction, or with a grant that is not recorded yet. Nothing can be released from there,
because other threads would wait for that mutex for as long as the main thread stays in the signal handler. So
the handler returns, and comes back once that work has ended or waits for something.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from interlock._runtime.lifetimes import call_at_rest, give_back_everything
from interlock._support import clock, native
from interlock._support.waiting import waits_in
from interlock.errors import InvalidSetting

POLL_PERIOD_S = 0.005  # seconds until the handler looks at the main thread again

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
_APART = ("cli", "lab", "testing")  # our own programs, which use the rest of the package as any user does
_HARMLESS = {  # signals that stop a program, or do nothing, unless it has a handler for them
    getattr(signal, name)
    for name in ("SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH")
    if hasattr(signal, name)
}


def release_on_signal(*signals: int, timeout: float = 5.0) -> None:
    """Release every lease of this process when one of `signals` ends it (default: SIGTERM), within `timeout`
    seconds.

        interlock.release_on_signal()

    After that the process ends as it would have. Call this from the main thread, once, at the start of the
    program. Without it, the leases of a process that SIGTERM ends last until their ttl is over.

    A signal that is ignored, or that has a handler, is left alone: such a program may go on, and then it
    needs its leases. If its handler raises, as that of Ctrl-C does, the `with` statements release; the end of
    the program releases the rest.
    """
    numbers = signals or (signal.SIGTERM,)
    for number in numbers:
        if number in _HARMLESS:
            raise InvalidSetting(
                f"{signal.Signals(number).name} does not end a program: name signals that do, as SIGTERM does"
            )
    for number in numbers:
        before = signal.getsignal(number)
        if before is signal.SIG_DFL or isinstance(before, _Ending):
            signal.signal(number, _Ending(timeout))


class _Ending:
    """The handler of one signal, which would otherwise end the process at once."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._until: float | None = None  # set while it waits for the main thread's work to end
        self._caller: threading.Thread | None = None
        self._ending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            return  # the thread of _call_again has sent the signal once too often
        if self._until is None:
            self._until = clock.now() + self._timeout
            if _at_work(frame):
                call_at_rest(lambda: self._at_rest(number))
                self._caller = native.Thread(target=self._call_again, args=(number,), daemon=True)
                self._caller.start()
        if not _at_work(frame) or clock.now() >= self._until:
            self._end(number)

    def _at_rest(self, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self._end(number)

    def _call_again(self, number: int) -> None:
        """Send the signal again until the main thread can be interrupted: it may wait, or run an event
        loop, for ever.
        """
        main = threading.main_thread().ident
        while self._until is not None:
            time.sleep(POLL_PERIOD_S)
            if main is not None and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, number)  # to the main thread itself, so that it stops waiting
            else:
                signal.raise_signal(number)

    def _end(self, number: int) -> None:
        self._ending = True
        call_at_rest(None)
        left, self._until = max(0.1, (self._until or 0.0) - clock.now()), None
        if self._caller is not None:
            self._caller.join(1.0)  # from here on a signal is a new one
            self._caller = None
        # On a thread of its own: when the time is up, the main thread may still hold a mutex that this needs.
        worker = native.Thread(target=give_back_everything, args=(left,), daemon=True)
        worker.start()
        worker.join(left + 0.5)
        self._ending = False
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _at_work(frame: FrameType | None) -> bool:
    """Return whether the signal interrupted interlock's own work; its waits, and callbacks of the user, do
    not count.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            part = file[len(_PACKAGE) :].split(os.sep)[0]
            return part not in _APART and not waits_in(frame)
        if not _asked_by_its_caller(frame, file):
            return False
        frame = frame.f_back
    return False


def _asked_by_its_caller(frame: FrameType, file: str) -> bool:
    """Return whether a frame does the work of whoever called it: a function of the library, or a constructor
    made at run time.

    The code of records, of named tuples and of frozen modules stands in no file. A grant that is just being
    made is such a record: if the process ended there, the claim would be left behind.
    """
    if file.startswith("<"):
        module = str(frame.f_globals.get("__name__", ""))
        return file.startswith("<frozen ") or module.startswith(("interlock.", "namedtuple_"))
    return file.startswith(_STANDARD) and "site-packages" not in file
