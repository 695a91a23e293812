"""Attacks on mutations whose reply is lost, or whose first copy arrives late, while other clients go on, on a real server.

Claims, releases and renewals are attacked in `between`. Here it is the mutations that count: a register's write, and an eviction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Literal

import pytest

import interlock
from interlock import aio
from interlock.errors import InterlockError, LeaseLost, StoreUnavailable
from interlock.model import Standing
from interlock.testing.servers.proxy import Connection, Piece, Proxy
from tests.attacks.servers.site import Site
from tests.patience import PATIENCE, until

MARK = "counted-once"
MARKS = (
    MARK.encode(),
    MARK.encode().hex().encode(),
)  # as it crosses the wire: MySQL gets text in hexadecimal

Face = Literal["sync", "async"]
UNKNOWN = "may have been applied"


class Interceptor:
    """Stops at the first request with the mark in it, and calls `strike` there; then the client's connection ends.

    Unless it is `kept`, the server gets that request before. Nothing that the server says to it reaches the client.
    """

    def __init__(self, port: int, strike: Callable[[], object], *, kept: bool = False) -> None:
        self._strike = strike
        self._keeps = kept
        self._struck_at: Connection | None = None
        self._striking: asyncio.Task[None] | None = None
        self._hung_up = False
        self.struck = threading.Event()
        self.answered = threading.Event()
        self._proxy = Proxy(port, intercept=self._see)
        self.port, self.close = self._proxy.port, self._proxy.close

    def _see(self, piece: Piece) -> bytes | None:
        if piece.connection is self._struck_at and not piece.is_request:
            self._hung_up = not piece.data
            self.answered.set()
            return None
        if piece.is_request and self._struck_at is None and any(mark in piece.data for mark in MARKS):
            self._struck_at = piece.connection
            if self._keeps:
                self._proxy.requests.keep()
            self._striking = asyncio.ensure_future(self._intercept(piece.connection))
        return piece.data

    async def _intercept(self, connection: Connection) -> None:
        try:
            await asyncio.to_thread(self._strike)
            self.struck.set()
        finally:
            connection.hang_up()

    def deliver(self) -> None:
        """The request that was kept arrives, and is answered, unless the server has hung up."""
        self.answered.clear()
        if self._proxy.requests.kept and not self._hung_up:
            self._proxy.requests.deliver()
            assert self.answered.wait(PATIENCE)


class Repeated:
    """Each runs on every server; `site` is a fixture of the file that names the store."""

    @pytest.mark.parametrize("face", ["sync", "async"])
    @pytest.mark.parametrize("others", [True, False], ids=["another wrote", "nobody wrote"])
    def test_a_write_whose_reply_was_lost_is_done_once_or_nobody_knows(
        self, site: Site, face: Face, others: bool
    ) -> None:
        url = site.url()
        with interlock.connect(url) as judge:
            _append(judge, "first")  # so that no request of the attack has anything to prepare

            def strike() -> None:
                until(lambda: MARK in _written(judge))
                if others:
                    _append(judge, "other")

            with closing(Interceptor(site.port, strike)) as way:
                error = _update(site.through(url, way.port), face)
                assert way.struck.is_set()
            assert _written(judge) == ["first", MARK, *["other"] * others]
            assert error is None or others, "it wrote the present version, and the store knows that"
            _says_that_nobody_knows(error)

    @pytest.mark.parametrize("face", ["sync", "async"])
    @pytest.mark.parametrize("when", ["before the repetition", "after it"])
    def test_a_write_whose_first_copy_arrives_late_is_done_once_or_nobody_knows(
        self, site: Site, face: Face, when: str
    ) -> None:
        url = site.url()
        with interlock.connect(url) as judge:
            _append(judge, "first")  # so that no request of the attack has anything to prepare

            def strike() -> None:
                if when == "before the repetition":
                    _append(judge, "other")

            with closing(Interceptor(site.port, strike, kept=True)) as way:
                error = _update(site.through(url, way.port), face)
                assert way.struck.is_set()
                applied = _written(judge).count(MARK)
                if when == "after it":
                    _append(judge, "other")
                way.deliver()
                assert _written(judge).count(MARK) == applied <= 1
            assert _written(judge).count("other") == 1
            assert error is not None or applied
            _says_that_nobody_knows(error)

    @pytest.mark.parametrize("face", ["sync", "async"])
    @pytest.mark.parametrize("copy", ["first copy in time", "first copy late"])
    def test_an_eviction_whose_reply_was_lost_takes_nothing_from_the_next_holder(
        self, site: Site, face: Face, copy: str
    ) -> None:
        url, kept = site.url(), copy == "first copy late"
        with interlock.connect(url) as judge, interlock.connect(url) as first, interlock.connect(url) as next:
            with suppress(LeaseLost), judge.lock("x"):
                judge.evict("x", reason="so that no request of the attack has anything to prepare")
            held = first.lock("x").acquire(timeout=PATIENCE)
            assert held
            with _waiting(next) as leases:
                until(lambda: judge.inspect("x").waiters)
                with closing(Interceptor(site.port, lambda: kept or until(lambda: leases), kept=kept)) as way:
                    met, error = _evict(site.through(url, way.port), face)
                    assert way.struck.is_set()
                    if error is None:
                        until(lambda: leases)
                        assert [standing.token for standing in met] == [held.token]
                    way.deliver()
                until(lambda: leases)  # at the latest by the copy that was late
                assert [holder.token for holder in judge.inspect("x").holders] == [leases[0].token]
                leases[0].renew()
            _says_that_nobody_knows(error)


def _append(client: interlock.Client, word: str) -> None:
    client.register("x").update(lambda words: [*(words or []), word])


def _written(client: interlock.Client) -> list[str]:
    words: list[str] = client.register("x").read().value or []
    return words


def _update(url: str, face: Face) -> InterlockError | None:
    """Write the mark to the end of the register; what was raised, if anything."""

    async def update() -> None:
        async with aio.connect(url) as client:
            await client.register("warm").read()
            await client.register("x").update(lambda words: [*(words or []), MARK])

    try:
        if face == "async":
            asyncio.run(update())
        else:
            with interlock.connect(url) as client:
                client.register("warm").read()
                _append(client, MARK)
    except InterlockError as error:
        return error
    return None


def _evict(url: str, face: Face) -> tuple[list[Standing], InterlockError | None]:
    async def evict() -> list[Standing]:
        async with aio.connect(url) as client:
            await client.inspect("x")
            return await client.evict("x", reason=MARK)

    try:
        if face == "async":
            return asyncio.run(evict()), None
        with interlock.connect(url) as client:
            client.inspect("x")
            return client.evict("x", reason=MARK), None
    except InterlockError as error:
        return [], error


@contextmanager
def _waiting(client: interlock.Client) -> Iterator[list[Any]]:
    """Another thread waits for the lock; its lease is in the list once it has it."""
    leases, ended = list[Any](), threading.Event()

    def wait() -> None:
        with client.lock("x", timeout=PATIENCE) as lease:
            leases.append(lease)
            ended.wait(PATIENCE)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield leases
    finally:
        ended.set()
        thread.join(PATIENCE)


def _says_that_nobody_knows(error: InterlockError | None) -> None:
    """If there is an error, it says so."""
    if error is not None:
        assert isinstance(error, StoreUnavailable)
        assert UNKNOWN in str(error)
