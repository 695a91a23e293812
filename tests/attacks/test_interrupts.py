"""Ctrl-C at every step of every synchronizer leaves nothing behind: judged by the store, not by our own lists."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import interlock
from interlock._core import keeper
from interlock._core.attempt import Attempt
from interlock._core.drive import drive
from interlock._core.holding import Holding
from tests.attacks.strike import strikes
from tests.patience import PATIENCE, until

PACKAGE = os.path.dirname(interlock.__file__)


class Scene:
    """A client that is interrupted, and one that looks on."""

    def __init__(self, url: str) -> None:
        self.client = interlock.connect(url, listener=lambda event: None)
        self.other = interlock.connect(url, listener=lambda event: None)

    def left_in(self, seconds: float) -> list[str]:
        """What is left after at most so long: a claim that was taken back twice may take a moment."""
        until = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.001)
        return left

    def left(self) -> list[str]:
        core = self.client._core
        names = [name for name in drive(core.store.scan("", "", 10)) if name != "busy"]
        waiters = [f"waiter {waiter.id}" for waiter in self.other.inspect("busy").waiters]
        kept = [repr(kept) for kept in core.keeper.kept() if not kept._ended]
        heads = [f"head of {name}" for name in core.cohorts._heads]
        return [*names, *waiters, *map(repr, list(core.leases)), *kept, *heads]


def with_lock(scene: Scene) -> None:
    with scene.client.lock("x"):
        pass


def with_rlock_twice(scene: Scene) -> None:
    rlock = scene.client.rlock("x")
    with rlock, rlock:
        pass


def with_write_lock(scene: Scene) -> None:
    with scene.client.rwlock("x").write():
        pass


def with_semaphore(scene: Scene) -> None:
    with scene.client.semaphore("x", 3):
        pass


def with_multilock(scene: Scene) -> None:
    with scene.client.multilock(["x", "y"]):
        pass


def acquire_in_vain(scene: Scene) -> None:
    scene.client.lock("busy").acquire(timeout=0.001)


def acquire_several_in_vain(scene: Scene) -> None:
    scene.client.multilock(["a", "b", "busy"]).acquire(timeout=0.001)


def wait_in_vain(scene: Scene) -> None:
    condition = scene.client.condition("x")
    with condition:
        condition.wait(0.001)


def pass_on(scene: Scene) -> None:
    """Release to an heir."""
    in_turn(scene, lends=True)


def inherit(scene: Scene) -> None:
    """Get it from another of the same client."""
    in_turn(scene, lends=False)


def in_turn(scene: Scene, *, lends: bool) -> None:
    """One holds, one asks the store, and behind that one stand we and another: the first of us passes it on."""
    holds, go = threading.Event(), threading.Event()

    def hold() -> None:
        with suppress(interlock.NotHeld), scene.client.lock("x"):
            holds.set()
            go.wait(PATIENCE)

    def take(after: int = 0) -> None:
        lined_up(scene, after)
        with suppress(interlock.NotHeld):
            with_lock(scene)

    def direct() -> None:
        lined_up(scene, 2)
        go.set()

    holder, asks, other, director = (
        threading.Thread(target=target, args=args)
        for target, args in ((hold, ()), (take, ()), (take, (1,) if lends else ()), (direct, ()))
    )
    holder.start()
    holds.wait(PATIENCE)
    asks.start()
    while not scene.client._core.cohorts._heads:
        time.sleep(0.0001)
    other.start()
    if not lends:
        lined_up(scene, 1)
    director.start()
    try:
        with_lock(scene)
    finally:
        for thread in (director, holder, asks, other):
            thread.join(PATIENCE)
            assert not thread.is_alive()


def lined_up(scene: Scene, count: int) -> None:
    """Wait, but not for long, until so many stand behind the head."""
    until = time.monotonic() + 0.02
    cohorts = scene.client._core.cohorts
    while time.monotonic() < until and "x" in cohorts._heads and len(cohorts._lines.get("x", ())) < count:
        time.sleep(0.0001)


OPERATIONS: list[Callable[[Scene], None]] = [
    pass_on,
    inherit,
    with_lock,
    with_rlock_twice,
    with_write_lock,
    with_semaphore,
    with_multilock,
    acquire_in_vain,
    acquire_several_in_vain,
    wait_in_vain,
]


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    kind = request.param
    scene = Scene(f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/locks.db")
    with scene.other, scene.client, scene.other.lock("busy"):
        yield scene


@pytest.mark.parametrize("operation", OPERATIONS)
def test_ctrl_c_at_any_step_leaves_nothing_behind(
    operation: Callable[[Scene], None], scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MAX_NAP_S", 0.01)  # a second else, and there are hundreds of steps
    monkeypatch.setattr(keeper, "HALF_AWAKE_S", 0.01)
    if operation in (pass_on, inherit) and not scene.client.traits.blocks:
        pytest.skip("this store keeps no cohorts")
    # What happens only once has happened: threads are started, and the socket that wakes waiters is made.
    assert not scene.client.lock("busy").acquire(timeout=0.01)
    operation(scene)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine struck before its first step
        for strike in strikes(lambda: operation(scene), PACKAGE):
            assert not scene.left_in(PATIENCE), strike.where
            lease = scene.client.lock("free").acquire(timeout=PATIENCE)
            assert lease, strike.where
            lease.release()


@pytest.mark.parametrize("entered", [False, True], ids=["acquire", "with"])
def test_a_second_interrupt_in_the_way_back_leaves_the_claim_to_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entered: bool
) -> None:
    """Nobody else would release it before its ttl is over."""

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    with interlock.connect(f"sqlite:///{tmp_path}/locks.db", ttl=600.0) as client:
        with client.lock("warm"):
            pass
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Holding, "register_lease", strike)
            patched.setattr(Attempt, "_leave_queue", strike)
            if entered:
                with client.lock("x"):
                    pass
            else:
                client.lock("x").acquire()
        until(lambda: not client.inspect("x").standings)
