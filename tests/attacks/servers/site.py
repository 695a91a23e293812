"""A real server that these attacks may freeze and cut off, whatever store it is of."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import interlock
from interlock.errors import StoreUnavailable
from interlock.testing.servers.process import freeze, thaw

SESSION = 60.0  # seconds: no ttl of these attacks is longer


@dataclass(frozen=True)
class Site:
    """Where the server is, and how a test gets a place of its own there.

    `fresh(session)` names that place. Only a store whose claims lapse with their session needs the length of one.
    """

    port: int
    fresh: Callable[[float], str]
    processes: Callable[[], Sequence[int]]

    def url(self, port: int | None = None, session: float = SESSION) -> str:
        """A place of one test's own, reached through another port if one is given."""
        return self.fresh(session).replace(f":{self.port}", f":{port or self.port}")

    def through(self, url: str, port: int) -> str:
        """The same place, reached through another port."""
        return url.replace(f":{self.port}", f":{port}")

    def freeze(self) -> None:
        while True:
            try:
                return freeze(*self.processes())
            except (
                ProcessLookupError
            ):  # one of them has ended since they were listed, as that of a closed connection
                pass

    def thaw(self) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):  # PostgreSQL ends the process of a connection that has gone
                thaw(process)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


@contextmanager
def ticking(every: float = 0.01, tick: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A signal, again and again, that interrupts whatever system call the main thread is in; `tick` is its handler."""
    main, ended = threading.main_thread().ident, threading.Event()
    assert main is not None

    def send() -> None:
        while not ended.wait(every):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: tick())
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def nothing_left(judge: interlock.Client) -> bool:
    """Whether no claim stands there; a server that has just come back may not say yet."""
    try:
        return not list(judge.scan())
    except StoreUnavailable:
        return False
