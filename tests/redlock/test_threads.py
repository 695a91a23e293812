"""Threads that are interrupted, end early or cannot be had: a client loses no connection for it."""

from __future__ import annotations

import _thread
import threading
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.blocking import MAX_SETS, BlockingQuorumTransport
from interlock.backends.redlock.transport.connections import ConnectionSet
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.packed import Packed
from interlock.backends.redlock.wire.requests import Request
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import steady
from tests.patience import PATIENCE


def panel_of(client: interlock.Client) -> BlockingQuorumTransport:
    store = client._core.store
    assert isinstance(store, RedlockStore)
    transport = store._quorum.transport
    assert isinstance(transport, BlockingQuorumTransport)
    return transport


def test_an_exception_between_taking_a_connection_and_using_it_costs_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `PyThreadState_SetAsyncExc` throws them, at any instruction: what was taken there nobody can give back."""
    with interlock.connect(steady().url(f"{uuid4().hex}:")) as client:
        transport = panel_of(client)
        take = transport._take_set

        def struck(request: Request, packed: Packed, timeouts: Timeouts) -> ConnectionSet:
            take(request, packed, timeouts)
            raise KeyboardInterrupt

        with client.lock("first"):
            pass
        for _ in range(2 * MAX_SETS):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(transport, "_take_set", struck)
                client.inspect("x")
        with client.lock("x", timeout=5.0):
            assert len(transport._slots) <= 2


def test_a_thread_that_never_runs_keeps_nobody_from_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception thrown into a thread that starts another can end the new one before its first line."""
    start, dropped = _thread.start_new_thread, list[object]()

    def sometimes(function: Any, arguments: tuple[Any, ...]) -> int:
        if len(dropped) < 7:
            dropped.append(None)
            return 0  # and nobody has the arguments any more
        return start(function, arguments)

    url = steady().url(f"{uuid4().hex}:")
    with interlock.connect(url) as client, client.lock("first"):
        pass
    monkeypatch.setattr(_thread, "start_new_thread", sometimes)
    with interlock.connect(url) as client, client.lock("x", timeout=PATIENCE):
        assert len(dropped) == 7


def test_locks_are_taken_though_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(function: Any, arguments: tuple[Any, ...]) -> int:
        raise RuntimeError("can't start new thread")

    url = steady().url(f"{uuid4().hex}:")
    with interlock.connect(url) as client, client.lock("first"):
        pass
    with interlock.connect(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", exhausted)
            claim = Claim("x", uuid4().hex, 30.0)
            assert isinstance(drive(client._core.store.claim(claim)), Granted)
            assert drive(client._core.store.release("x", claim.id))
        with client.lock("x"):  # with a keeper, which is a thread
            pass


def test_a_release_from_inside_a_critical_section_can_know_that_it_is() -> None:
    """A garbage collector or a signal handler may run a user's release in the midst of any line."""
    with interlock.connect(steady().url(f"{uuid4().hex}:")) as client, client.lock("x"):
        store, transport = client._core.store, panel_of(client)
        assert not store.inside()
        with transport._mutex:
            assert store.inside()
            elsewhere: list[bool] = []
            other = threading.Thread(target=lambda: elsewhere.append(store.inside()))
            other.start()
            other.join()
            assert elsewhere == [False]
