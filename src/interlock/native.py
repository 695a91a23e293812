"""The system's own threads and locks, also where gevent or eventlet have put greenlets in their place.

A program's greenlets share one thread: one that computes for longer than a ttl would keep the renewals of all others
waiting, and lose their leases. So what must go on in time runs on a thread of the system, and what it shares with
greenlets is guarded by locks of the system, for a few lines in which nobody switches to another greenlet.
"""

from __future__ import annotations

import _thread
import sys
from typing import Any, Protocol, cast


class Guard(Protocol):
    """A lock of the system that its thread may take again: in a signal handler, or where garbage is collected."""

    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> object: ...
    def _is_owned(self) -> bool: ...


def guard() -> Guard:
    made: Guard = cast(Any, _thread.RLock())
    return made


def green(module: str = "threading") -> str:
    """The library that has replaced a module's threads, or sockets, by greenlets': gevent, eventlet, or none ("")."""
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
