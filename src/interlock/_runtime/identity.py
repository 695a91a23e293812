"""The identity of the caller, and ids that nobody else has.

An id is 80 random bits of this process and a count. A forked child draws new bits: two processes
with the parent's would take each other's claims for their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from interlock._core.runtime import Owner

MAX_LABEL_CHARACTERS = 200  # characters kept of the name of a thread, a task or a file
_NOBODY = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, contextlib.__file__)
"""Files whose lines are never named as a caller's: those of this package, and those that enter locks for
others (ExitStack, contextmanager).
"""


class _Process:
    """The values that are drawn once in a process."""

    def __init__(self) -> None:
        self.prefix = os.urandom(10).hex() + "-"
        self.count = count(1)
        self.pid = os.getpid()


_process = _Process()


def renew_identity() -> None:
    """Draw new random bits; called in a forked child."""
    global _process
    _process = _Process()


def fresh_id() -> str:
    process = _process
    return f"{process.prefix}{next(process.count)}"


class ThreadOwner:
    """One thread.

    It is alive as long as its thread-local mark is: foreign threads too, ids are not reused.
    """

    __slots__ = ("__weakref__", "alive", "name", "quoted")

    def __init__(self, mark: object) -> None:
        # The weak reference itself is the method. It returns the mark, which is true, and None once the
        # thread has ended.
        self.alive = weakref.ref(mark)  # type: ignore[assignment, method-assign]
        ident = threading.get_ident()
        # Not current_thread(): it would leave a dummy Thread behind for a foreign thread.
        names = [thread.name for thread in threading.enumerate() if thread.ident == ident]
        self.name = names[0] if names else f"thread-{ident}"
        self.quoted = quote(self.name)

    if TYPE_CHECKING:

        def alive(self) -> bool: ...

    def __str__(self) -> str:
        return f"thread {self.name}"


class _Mark:
    """Lives in one thread's local storage and dies with the thread."""

    __slots__ = ("__weakref__",)


class _Here(threading.local):
    owner: ThreadOwner | None = None
    mark: _Mark | None = None


_here = _Here()


def thread_owner() -> ThreadOwner:
    owner = _here.owner
    if owner is None:
        _here.mark = mark = _Mark()
        _here.owner = owner = ThreadOwner(mark)
    return owner


def quote(text: str) -> str:
    import json

    # The name of a thread or a path may have characters that no store can keep: that must not cost a lock.
    return json.dumps(text[:MAX_LABEL_CHARACTERS].encode("utf-8", "replace").decode(), ensure_ascii=False)


MIN_CALL_DEPTH = 3
"""Frames between a user's line and `describe`, at least: those of the API and of the core."""

DECORATED = "function"
"""What our decorators call the function that they stand over: its line is shown, and not that of whoever
calls it.
"""

_PARTIAL: type[Any] = partial


class Site:
    """A line from which locks are taken, and how its last caller was described there."""

    __slots__ = ("code", "described", "place")

    def __init__(self, code: CodeType, place: str) -> None:
        self.code = code  # kept, or another code would get its id
        self.place = place
        # One assignment, of all three: threads come here at the same time. A forked child is another process.
        self.described: tuple[Owner | None, _Process | None, str] = (None, None, "")


_host = ""
_sites: dict[tuple[int, int], Site] = {}


def describe(owner: Owner) -> str:
    """The caller as JSON, as `interlock.who.Who` reads it: host, pid, thread or task, call site."""
    try:
        frame = sys._getframe(MIN_CALL_DEPTH)
    except ValueError:  # a thread started on our own function: nobody's line is nearer than ours
        frame = sys._getframe(1)
    code = frame.f_code
    site = _sites.get((id(code), frame.f_lasti))
    if site is None or site.code is not code:
        site = _site(frame)
    process = _process
    caller, there, who = site.described
    if caller is owner and there is process:
        return who
    name: str = getattr(owner, "quoted", '""')
    who = f"[{_host or _quoted_host()},{process.pid},{name},{site.place}]"
    site.described = (owner, process, who)
    return who


def described_at(site: str) -> Callable[[Owner], str]:
    """A `describe` for programs whose own threads and lines tell nobody anything: `site` stands for both."""
    if not isinstance(site, str):
        raise TypeError(f"call_site is a str, not {type(site).__name__}")
    quoted = quote(site)

    def describe(owner: Owner) -> str:
        return f'[{_host or _quoted_host()},{_process.pid},"",{quoted}]'

    return describe


def _site(frame: FrameType) -> Site:
    """The nearest line outside this package, seen from a frame."""
    while (code := frame.f_code).co_filename.startswith(_NOBODY) and frame.f_back is not None:
        # The function, and not its caller: a task queue or a scheduler calls all functions from one line.
        if DECORATED in code.co_freevars and (own := _code_of(frame.f_locals[DECORATED])) is not None:
            code, last = own, -1
            break
        frame = frame.f_back  # the nearest line of somebody else
    else:
        last = frame.f_lasti
    key = (id(code), last)
    known = _sites.get(key)
    if known is None or known.code is not code:
        line = frame.f_lineno if last >= 0 else code.co_firstlineno
        known = _sites[key] = Site(code, _call_site(code, line))
    return known


def _quoted_host() -> str:
    global _host
    _host = quote(
        os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "localhost")
    )
    return _host


def _code_of(function: object) -> CodeType | None:
    """The code of a function, below other decorators and partials; None for what is not written in Python."""
    for _ in range(20):  # deep enough; what claims to wrap itself must not keep us here
        inner: Any = getattr(function, "func" if isinstance(function, _PARTIAL) else "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code: Any = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _call_site(code: CodeType, line: int | None) -> str:
    """A line of code, `folder/file.py:88`, as JSON."""
    if len(_sites) > 1000:
        _sites.clear()  # code made at run time must not grow this for ever
    folder, file = os.path.split(code.co_filename)
    return quote(f"{os.path.join(os.path.basename(folder), file)}:{line}")
