"""The system's own threads and locks, also where gevent or eventlet have put greenlets in their place.

All greenlets of a program share one thread. If one of them computes for longer than a ttl, the renewals of
all others wait for it, and their leases are lost. So work that must happen in time runs on a thread of the
system, and what it shares with greenlets is guarded by locks of the system, which are held for a few lines
without a switch to another greenlet.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from weakref import ref

from interlock._core.runtime import Mutex


def mutex() -> Mutex:
    """A lock of the system that knows its thread: code run there by a signal or a garbage collector can
    ask.
    """
    made: Mutex = cast(Any, _thread.RLock())  # which neither library replaces
    return made


def green(module: str = "threading") -> str:
    """The library that has replaced a module's threads, or sockets, by greenlets': gevent, eventlet, or
    none ("").
    """
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched(module):
        return "gevent"
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched({"threading": "thread"}.get(module, module)):
        return "eventlet"
    return ""


def original(name: str) -> Any:
    """What the module `_thread` has under this name, before anything was replaced."""
    library = green()
    if library == "gevent":
        return sys.modules["gevent.monkey"].get_original("_thread", name)
    if library == "eventlet":
        return getattr(sys.modules["eventlet.patcher"].original("_thread"), name)
    return getattr(_thread, name)


class PlainSocket:
    """A connection that a greenlet has made, as any thread of the system can use it; greenlets cannot any
    more.
    """

    def __init__(self, sock: Any) -> None:
        import _socket  # here, not above: `import interlock` stays light

        self._calls = (
            _socket.socket
        )  # by their class: eventlet has put others before the methods of the object
        self._tls = getattr(sock, "_sslobj", None)
        if green("socket") == "gevent":
            self._sock = sock._sock
            sock._drop_events_and_close(closefd=False)  # what its event loop keeps of it
        else:
            self._sock = sock if self._tls is not None else sock.fd

    def settimeout(self, timeout: float) -> None:
        self._calls.settimeout(self._sock, timeout)

    def sendall(self, data: bytes) -> None:
        if self._tls is None:
            self._calls.sendall(self._sock, data)
        else:
            sent = 0
            while sent < len(data):
                sent += self._tls.write(data[sent:])

    def recv(self, most: int) -> bytes:
        got: bytes = self._calls.recv(self._sock, most) if self._tls is None else self._tls.read(most)
        return got

    def setsockopt(self, level: int, name: int, value: bytes) -> None:
        self._calls.setsockopt(self._sock, level, name, value)

    def shutdown(self, how: int) -> None:
        self._calls.shutdown(self._sock, how)

    def close(self) -> None:
        self._tls = None
        self._calls.close(self._sock)


class _ThreadLife:
    """The life of a new thread.

    `ended` is called once, when `work` is over or when the thread goes without having begun it.
    """

    ended: Callable[[], object] | None = None  # also if an interrupt strikes in the constructor

    def __init__(self, work: Callable[[], object], ended: Callable[[], object]) -> None:
        self.work = work
        self.ended = ended

    def target(self) -> Callable[[], None]:
        """What the thread calls.

        It alone keeps this object alive, and the system drops it when the thread ends.
        """
        call: Any = partial(_live, ref(self))
        call.life = self
        return cast(Callable[[], None], call)

    def end(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()

    def __del__(self) -> None:
        self.end()


def _live(life: Callable[[], _ThreadLife | None]) -> None:
    """Do the work of a thread's life.

    An exception that strikes before the first line is kept by whoever reports it, and this frame with it. So
    the frame must not keep the life, whose end somebody waits for.
    """
    try:
        life().work()  # type: ignore[union-attr]
    finally:
        # Here, and not only when it goes: an error from the work may keep its object.
        if (ends := life()) is not None:
            ends.end()


def begin(work: Callable[[], object], ended: Callable[[], object]) -> None:
    """Do `work` on a new thread, and `ended` when that is over, however the thread ends; does not wait for
    its start.

    A greenlet in a program of greenlets. Raises RuntimeError if no thread can be had.
    """
    life = _ThreadLife(work, ended)
    try:
        _thread.start_new_thread(life.target(), ())
    except BaseException:
        life.ended = None
        raise


if sys.version_info >= (3, 12):
    Thread = threading.Thread
else:

    class Thread(threading.Thread):
        """A thread whose `start` does not hang.

        `threading.Thread.start` waits until the new thread runs. On Python 3.11 an exception that is thrown
        into the caller meanwhile (`PyThreadState_SetAsyncExc`, as dramatiq and func_timeout do at a time
        limit) can strike the new thread instead, whose state still carries the caller's identity. That thread
        is gone before it has told anybody that it runs, and its starter would wait for ever, with whatever
        locks it has.
        """

        @property
        def _bootstrap(self) -> Callable[[], None]:
            library, started = cast(Any, super()), cast(Any, self)._started
            return _ThreadLife(library._bootstrap, started.set).target()

        def start(self) -> None:
            """As the library's; RuntimeError also if the new thread was ended before it began."""
            super().start()
            if self._never_ran():
                library = cast(Any, threading)
                with library._active_limbo_lock:
                    library._limbo.pop(self, None)  # nobody else would take it out
                self._is_stopped = True
                raise RuntimeError("can't start new thread: an exception ended it before it began")

        def is_alive(self) -> bool:
            """As the library's; False, not an AssertionError, if the new thread was ended before it began."""
            return not self._never_ran() and super().is_alive()

        def _never_ran(self) -> bool:
            return cast(Any, self)._tstate_lock is None and not cast(Any, self)._is_stopped


_running: set[int] = set()  # the threads that `run` has begun
_ends: dict[int, list[Callable[[], object]]] = {}  # by thread


def no_greenlets() -> bool:
    """Whether the caller is on a thread that `run` has begun: it may wait by a lock of the system, for no
    greenlet needs its thread.
    """
    return original("get_ident")() in _running


def at_thread_end(call: Callable[[], object]) -> None:
    """Make this call on the calling thread when it ends, if it is one of ours: see `run`."""
    _ends.setdefault(original("get_ident")(), []).append(call)


def run(work: Callable[[], object], gone: Callable[[], object] | None = None) -> int:
    """Run on a new thread of the system. Returns its identity.

    `gone` is called when the thread has left its hub, too. A program must not end before: if the interpreter
    ends while a thread is in a hub, the system unwinds the thread, greenlet drops objects of Python on the
    way, and the process crashes.
    """

    def body() -> None:
        ident = original("get_ident")()
        try:
            _running.add(ident)
            work()
        finally:
            try:
                for call in _ends.pop(ident, ()):
                    call()
                _leave_hub()
            finally:
                _running.discard(ident)
                if gone is not None:
                    gone()

    ident: int = original("start_new_thread")(body, ())
    return ident


def _leave_hub() -> None:
    """End what gevent has made for the sockets of this thread: without that it would stay for ever."""
    if green("socket") == "gevent":
        hub = sys.modules["gevent._hub_local"].get_hub_if_exists()
        if hub is not None:
            hub.destroy(destroy_loop=True)
