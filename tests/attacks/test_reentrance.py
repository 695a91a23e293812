"""Calls in the midst of interlock's own lines: by the garbage collector, or by a signal handler.

Such a release may find its own thread inside a mutex. It must not wait for it: the keeper does it instead. Any other
call is refused there, because what it would read or change is half changed.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock._core import keeper
from interlock.testing.lag import stretched
from tests.attacks.stage import eventually
from tests.attacks.strike import Strike
from tests.patience import PATIENCE

PACKAGE = os.path.dirname(interlock.__file__)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path}" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[interlock.Client]:
    with interlock.connect(url) as client:
        yield client


def in_time(work: Callable[[], object]) -> None:
    """Fail instead of hanging: a thread that waits for itself never ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE * 3)
    assert not thread.is_alive(), "it waits for a guard that its own thread holds"
    assert not failures, failures


class Node:
    """Something in a reference cycle: only the garbage collector ends it."""

    def __init__(self) -> None:
        self.itself = self
        self.held: object = None


class Releases(Node):
    """An object whose end gives a lease back."""

    def __init__(self, lease: interlock.Lease) -> None:
        super().__init__()
        self._lease = lease

    def __del__(self) -> None:
        self._lease.release()


@pytest.mark.parametrize("how", ["generator", "__del__"])
def test_a_lease_that_the_garbage_collector_gives_back_hangs_nobody(
    how: str, client: interlock.Client
) -> None:
    def body(lock: interlock.Lock) -> Iterator[None]:
        with lock:
            yield

    def abandon(name: str) -> None:
        node: Node
        if how == "generator":
            node = Node()
            generator = body(client.lock(name))
            next(generator)
            node.held = generator
        else:
            lease = client.lock(name).acquire()
            assert lease
            node = Releases(lease)
            del lease

    def work() -> None:
        before = gc.get_threshold()
        gc.set_threshold(7, 2, 2)  # the collector runs in the midst of many lines
        try:
            for number in range(400):
                abandon(f"abandoned-{number}")
                with client.lock("x"):
                    pass
        finally:
            gc.set_threshold(*before)

    in_time(work)
    gc.collect()
    eventually(lambda: not list(client.scan()), PATIENCE)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
@pytest.mark.parametrize("what", ["release", "close"])
def test_a_signal_handler_may_release_or_close_at_any_step(what: str, url: str) -> None:
    def run() -> None:
        for number in range(2000):
            client = interlock.connect(url)
            lease = client.lock(f"y{number}").acquire()
            assert lease
            handler = lease.release if what == "release" else client.close
            with client:
                if not struck(client, number + 1, handler):
                    return
                with interlock.connect(url) as other:
                    eventually(lambda: not list(other.scan()), PATIENCE)

    def struck(client: interlock.Client, number: int, handler: Callable[[], object]) -> bool:
        def operation() -> None:
            with ExitStack() as stack:
                stack.enter_context(client.lock("x"))

        try:
            return Strike(number, PACKAGE, handler).run(operation)
        except interlock.ClientClosed:
            return True

    in_time(run)


def handlers(client: interlock.Client) -> dict[str, Callable[[], object]]:
    """What a program's signal handler may do besides releasing: look, and try."""

    def try_it() -> None:
        if lease := client.lock("x").acquire(blocking=False):
            lease.release()

    return {
        "locked": lambda: client.lock("x").locked(),
        "inspect": lambda: client.inspect("x"),
        "scan": lambda: list(client.scan()),
        "acquire": try_it,
        "evict": lambda: client.evict("x", id="nobody's", reason="a test"),
        "read": client.register("r").read,
        "write": lambda: client.register("r").update(lambda _: 1),
    }


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("what", ["locked", "inspect", "scan", "acquire", "evict", "read", "write"])
def test_a_signal_handler_that_looks_or_tries_lets_no_second_holder_in(what: str, url: str) -> None:
    def run() -> None:
        with interlock.connect(url) as client, interlock.connect(url) as other:
            refused = 0

            def handler() -> None:
                nonlocal refused
                try:
                    handlers(client)[what]()
                except interlock.StoreUnavailable as error:
                    refused += "signal handler" in str(error)

            struck = True
            for number in range(1, 2000):
                if not struck:
                    break
                held: list[interlock.Lease] = []
                strike = Strike(number, PACKAGE, handler)
                struck = strike.run(lambda: held.append(client.lock("x").acquire(timeout=5)))  # type: ignore[arg-type]  # noqa: B023
                (lease,) = held
                assert not other.lock("x").acquire(blocking=False), strike.where
                lease.check()
                struck |= Strike(number, PACKAGE, handler).run(lease.release)
                assert not client.inspect("x").standings
            assert not struck
            assert refused

    in_time(run)


def test_a_release_from_inside_a_mutex_is_done_by_the_keeper(client: interlock.Client) -> None:
    lease = client.lock("x").acquire()
    assert lease
    with client._core.mutex:
        lease.release()
        assert (
            lease.state is interlock.State.HELD
        )  # not yet: nothing inside a guard may change under its feet
    eventually(lambda: lease.state is interlock.State.RELEASED, PATIENCE)
    eventually(lambda: not client.inspect("x").holders, PATIENCE)


@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "multilock", "condition"])
def test_a_lock_is_not_taken_from_inside_a_mutex(client: interlock.Client, kind: str) -> None:
    """Whoever waited there would hold up the keeper, and every thread of the client."""
    made: dict[str, Callable[[], Any]] = {
        "lock": lambda: client.lock("x"),
        "rlock": lambda: client.rlock("x"),
        "semaphore": lambda: client.semaphore("x", 2),
        "multilock": lambda: client.multilock(["x", "y"]),
        "condition": lambda: client.condition("x"),
    }
    lock = made[kind]()
    with client._core.mutex, pytest.raises(interlock.StoreUnavailable, match="signal handler"):
        lock.acquire(timeout=5)
    assert not list(client.scan())
    with lock:
        pass


def test_a_body_that_is_cut_short_before_its_exit_is_called_is_not_renewed(
    client: interlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What remains of a statement that was interrupted before the first instruction of `__exit__`."""
    lock = client.lock("x", ttl=0.5)
    leave = lock.__exit__  # as the statement looks it up
    kept = lock.__enter__()
    assert client.inspect("x").holders
    del leave  # as the statement ends without having called it
    eventually(lambda: not client.inspect("x").holders, PATIENCE)
    assert kept.state is interlock.State.RELEASED


def test_a_traceback_that_is_kept_keeps_no_lease(client: interlock.Client) -> None:
    kept: list[BaseException] = []

    def strike_late() -> None:
        with client.lock("x", ttl=0.5) as lease:
            lease._holding.leave = interrupted  # type: ignore[assignment]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        strike_late()
    except KeyboardInterrupt as error:
        kept.append(error)
    eventually(lambda: not client.inspect("x").holders, PATIENCE)
    assert kept


def test_a_stack_whose_exit_was_cut_short_waits_for_no_collector(client: interlock.Client) -> None:
    """Its frame and the exception refer to each other, so they live until the garbage collector runs."""

    def strike_late() -> None:
        with ExitStack() as stack:
            lease = stack.enter_context(client.lock("x", ttl=60))  # it must not lapse by itself meanwhile
            lease._holding.leave = interrupted  # type: ignore[assignment]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            strike_late()
        eventually(lambda: not client.inspect("x").holders, stretched(15))
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 2),
    reason="3.12.1 itself crashes, now and then, where one thread is traced and another runs the same generator",
)
@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "multilock", "condition"])
def test_an_exit_stack_that_is_interrupted_at_any_step_of_an_exit_keeps_nothing(
    client: interlock.Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame and the exception refer to each other: nobody may have to wait for the garbage collector."""

    def operation() -> None:
        name = f"x{len(names)}"
        names.append(name)
        made: dict[str, Callable[[str], Any]] = {
            "lock": client.lock,
            "rlock": client.rlock,
            "semaphore": lambda name: client.semaphore(name, 2),
            "multilock": lambda name: client.multilock([name, f"{name}:2"]),
            "condition": client.condition,
        }
        lock = made[kind](name)
        with ExitStack() as stack:
            stack.enter_context(lock)

    names: list[str] = []
    gc.collect()
    gc.disable()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(gc, "enable", lambda: None)  # not after each strike either
            for number in range(1, 2000):
                if not Strike(number, PACKAGE).run(operation):
                    break
        assert len(names) > 10
        eventually(lambda: not list(client.scan()), PATIENCE)
    finally:
        gc.enable()


def test_a_lock_entered_and_left_by_hand_is_held_in_between(client: interlock.Client) -> None:
    ttl = stretched(0.3)
    lock = client.lock("x", ttl=ttl)
    lock.__enter__()
    time.sleep(3 * ttl)  # past the ttl, and past a look of the keeper
    assert client.inspect("x").holders
    lock.__exit__(None, None, None)
    assert not client.inspect("x").holders


def test_statements_over_one_lock_object_keep_apart(client: interlock.Client) -> None:
    semaphore = client.semaphore("x", 3)
    with semaphore as first:
        with semaphore as second, ExitStack() as stack:
            third = stack.enter_context(semaphore)
            assert len({first.token, second.token, third.token}) == 3
        assert (first.state, second.state) == (interlock.State.HELD, interlock.State.RELEASED)
    assert first.state is interlock.State.RELEASED
    assert not client.inspect("x").holders


def test_attempts_that_fail_leave_no_statement_to_sweep(client: interlock.Client) -> None:
    from interlock._runtime import with_statements

    with interlock.connect(f"memory://{id(client)}") as other, other.lock("x"):
        before = len(with_statements._over)
        for _ in range(20):
            with pytest.raises(interlock.AcquireTimeout), other.lock("x", timeout=0):
                pass
        assert len(with_statements._over) <= before
    assert keeper.MAX_NAP_S <= 1.0  # within which the keeper sweeps
