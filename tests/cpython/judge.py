"""CPython's own tests of its locks, unmodified, against interlock's objects: the outside judge.

Every class of `test.lock_tests` that is about something interlock has; a test module runs them on one store.
"""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, ClassVar

import interlock

try:
    from test import lock_tests
except ImportError as missing:  # never a skip: nobody would notice that the judge stayed away
    raise ImportError(
        "CPython's own lock tests are not installed; `python3 dev.py setup` installs them "
        "(on Debian they are in the package libpython3.11-testsuite)"
    ) from missing

EXCLUDED = {
    "LockTests.test_at_fork_reinit": "calls _at_fork_reinit, a private method of the C object",
    "EventTests.test_at_fork_reinit": "looks at _cond, a private attribute of threading.Event",
}

_names = (f"cpython-{n}" for n in count())

Open = Callable[[], AbstractContextManager[str]]
"""Opens a store of a test class's own, and answers its URL."""


class Judged:
    """A client for one class of tests, and what the judge calls its types."""

    url: ClassVar[Any]
    client: ClassVar[interlock.Client]
    _open: ClassVar[Any]
    _waiter: ClassVar[threading.Thread]

    @classmethod
    def setUpClass(cls) -> None:
        cls._open = cls.url()
        cls.client = interlock.connect(cls._open.__enter__())
        cls._start_threads()

    @classmethod
    def _start_threads(cls) -> None:
        """Have every thread of the client run: the judge counts threads, and takes ours for leaks."""
        end = cls.client.event("end")
        cls._waiter = threading.Thread(target=end.wait)
        cls._waiter.start()
        with cls.client.lock("first"):
            assert not cls.client.lock("first").acquire(timeout=0.1)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.event("end").set()
        cls._waiter.join(10)
        cls.client.close()
        cls._open.__exit__(None, None, None)

    def locktype(self) -> Any:
        raise NotImplementedError

    def eventtype(self) -> interlock.Event:
        return self.client.event(next(_names))

    def condtype(self, lock: Any = None) -> interlock.Condition:
        return self.client.condition(next(_names), lock)

    def barriertype(
        self, parties: int, action: Any = None, timeout: float | None = None
    ) -> interlock.Barrier:
        return self.client.barrier(next(_names), parties, action, timeout)


def lock(test: Judged) -> interlock.Lock:
    return test.client.lock(next(_names))


def rlock(test: Judged) -> interlock.RLock:
    return test.client.rlock(next(_names))


def semaphore(test: Judged, value: int = 1) -> interlock.Semaphore:
    return test.client.semaphore(next(_names), value)


def bounded_semaphore(test: Judged, value: int = 1) -> interlock.BoundedSemaphore:
    return test.client.bounded_semaphore(next(_names), value)


SUITES: dict[str, dict[str, Callable[..., Any]]] = {
    "LockTests": {"locktype": lock},
    "RLockTests": {"locktype": rlock},
    "EventTests": {},
    "ConditionTests": {},
    "SemaphoreTests": {"semtype": semaphore},
    "BoundedSemaphoreTests": {"semtype": bounded_semaphore},
    "BarrierTests": {},
}


def judged(suite: str, store: str, open: Open) -> type[unittest.TestCase]:
    """The class that runs one of CPython's suites on one store."""
    excluded = [name.partition(".")[2] for name in EXCLUDED if name.startswith(suite + ".")]
    body = {**SUITES[suite], **dict.fromkeys(excluded), "url": staticmethod(open)}
    return type(f"{suite}On{store}", (Judged, getattr(lock_tests, suite)), body)


def suites(store: str, open: Open) -> dict[str, type[unittest.TestCase]]:
    """Every suite on one store: for the names of a test module."""
    return {f"{suite}On{store}": judged(suite, store, open) for suite in SUITES}
