"""A user's program over the sync face. Never run: mypy and pyright read it, as strictly as users may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, assert_type

import interlock
from interlock import events


def lost(lease: interlock.Lease) -> None:
    print(lease.resource, lease.token)


def heard(event: events.Event) -> None:
    if isinstance(event, events.Lost):
        assert_type(event.cause, str)


def connects() -> None:
    assert_type(interlock.connect(), interlock.Client)
    client = interlock.connect("sqlite:///locks.db", ttl=10, listener=heard)
    with client as same:
        assert_type(same, interlock.Client)
    assert_type(client.traits, interlock.Traits)
    assert_type(client.close(), None)
    interlock.release_on_signal()


def locks(client: interlock.Client) -> None:
    lock = client.lock("x", ttl=10, timeout=5, renew=True, fair=True, max_hold=60, min_hold=1, on_lost=lost)
    assert_type(lock, interlock.Lock)
    assert_type(lock.acquire(), interlock.Lease | None)
    assert_type(lock.acquire(False), interlock.Lease | None)
    assert_type(lock.acquire(blocking=True, timeout=2.5), interlock.Lease | None)
    assert_type(lock.release(), None)
    assert_type(lock.locked(), bool)
    assert_type(lock.owned(), bool)
    assert_type(lock.name, str)
    with lock as lease:
        assert_type(lease, interlock.Lease)
    if taken := lock.acquire(timeout=1):
        assert_type(taken, interlock.Lease)
    managed: AbstractContextManager[interlock.Lease] = lock
    with ExitStack() as stack:
        assert_type(stack.enter_context(managed), interlock.Lease)
    assert_type(client.rlock("x"), interlock.RLock)
    assert_type(client.rwlock("x").read(), interlock.ReadLock)
    assert_type(client.rwlock("x").write(), interlock.WriteLock)
    with client.rwlock("x").write() as written:
        assert_type(written, interlock.Lease)


def leases(lease: interlock.Lease) -> None:
    assert_type(lease.token, int)
    assert_type(lease.resource, str)
    assert_type(lease.ttl, float)
    assert_type(lease.remaining(), float)
    assert_type(lease.state, interlock.State)
    assert_type(lease.check(), None)
    assert_type(lease.renew(), None)
    assert_type(lease.release(), None)
    assert_type(lease.lost, threading.Event)
    with lease as same:
        assert_type(same, interlock.Lease)


def decorators(client: interlock.Client) -> None:
    @client.lock("job")
    def job(count: int, *, fast: bool = False) -> list[str]:
        return ["fast" if fast else "slow"] * count

    @client.semaphore("job", 3)
    def limited(text: str) -> int:
        return len(text)

    @client.multilock(["a", "b"])
    def both() -> None: ...

    @client.once("job:{text}", ttl=10, min_hold=5, max_hold=60, on_lost=lost)
    def once(text: str) -> int:
        return len(text)

    def name(text: str) -> str:
        return f"job:{text}"

    @client.once(name)
    def named(text: str) -> int:
        return len(text)

    assert_type(once("x"), int | interlock.Skipped)
    assert_type(named("x"), int | interlock.Skipped)
    with client.once("job") as lease:
        assert_type(lease, interlock.Lease)
    assert_type(client.once("job"), interlock.Once)

    assert_type(job(3, fast=True), list[str])
    assert_type(limited("x"), int)
    assert_type(both(), None)


def semaphores(client: interlock.Client) -> None:
    semaphore = client.semaphore("x", capacity=3)
    assert_type(semaphore, interlock.Semaphore)
    assert_type(semaphore.acquire(permits=2), interlock.Lease | Literal[False])
    assert_type(semaphore.release(2), None)
    assert_type(semaphore.capacity, int)
    assert_type(client.bounded_semaphore("x", 3), interlock.BoundedSemaphore)
    with semaphore as lease:
        assert_type(lease, interlock.Lease)


def multilocks(client: interlock.Client) -> None:
    multilock = client.multilock(name for name in ("a", "b"))
    assert_type(multilock, interlock.MultiLock)
    assert_type(multilock.acquire(timeout=1), interlock.MultiLease | None)
    assert_type(multilock.names, list[str])
    with multilock as both:
        assert_type(both, interlock.MultiLease)
        assert_type(both.tokens, dict[str, int])
        assert_type(both.leases, tuple[interlock.Lease, ...])
        assert_type(both.check(), None)


def elections(client: interlock.Client) -> None:
    election = client.election("x", on_lost=lost)
    assert_type(election, interlock.Election)
    assert_type(election.campaign("10.0.0.1:80", timeout=3), interlock.Lease | None)
    assert_type(election.leader(), interlock.Leader | None)
    assert_type(election.leading(), bool)
    assert_type(election.proclaim("10.0.0.1:81"), None)
    assert_type(election.resign(), None)
    for leader in election.observe():
        assert_type(leader, interlock.Leader | None)
        if leader is not None:
            assert_type(leader.value, str)
            assert_type(leader.who, interlock.Who)


def registers(client: interlock.Client) -> None:
    register = client.register("x")
    assert_type(register, interlock.Register)
    read = register.read()
    assert_type(read, interlock.Value[Any])
    assert_type(read.version, int)
    assert_type(register.compare_and_set(read, {"a": 1}), interlock.Value[Any] | None)
    assert_type(register.compare_and_set(0, [1]), interlock.Value[Any] | None)
    assert_type(register.update(lambda value: (value or 0) + 1), interlock.Value[Any])
    assert_type(register.watch(timeout=1), Iterator[interlock.Value[Any]])


def signals(client: interlock.Client) -> None:
    event = client.event("x")
    assert_type(event, interlock.Event)
    assert_type(event.wait(1), bool)
    assert_type(event.is_set(), bool)
    latch = client.latch("x", 3)
    assert_type(latch.count_down(), int)
    assert_type(latch.wait(1.5), bool)
    barrier = client.barrier("x", 2, action=lambda: None, timeout=3)
    assert_type(barrier.wait(), int)
    assert_type(barrier.parties, int)
    assert_type(barrier.broken, bool)
    condition = client.condition("x")
    with condition:
        assert_type(condition.wait(timeout=1), bool)
        assert_type(condition.wait_for(lambda: 3), int)
        assert_type(condition.notify_all(), None)
    client.condition("x", client.lock("x"))
    client.condition("x", threading.Lock())


def guards(client: interlock.Client, lease: interlock.Lease) -> None:
    assert_type(client.guard("x").accept(lease), int)
    assert_type(client.guard("x").accept(lease.token), int)
    assert_type(client.guard("x").highest(), int)


def operators(client: interlock.Client) -> None:
    queue = client.inspect("x")
    assert_type(queue, interlock.Queue)
    assert_type(queue.holders, tuple[interlock.Standing, ...])
    assert_type(client.scan("orders/"), Iterator[str])
    assert_type(client.watch("x", timeout=5), Iterator[interlock.Queue])
    assert_type(client.evict("x", reason="stuck since noon"), list[interlock.Standing])


def errors(lock: interlock.Lock) -> None:
    try:
        with lock:
            pass
    except interlock.AcquireTimeout as error:
        timeout: TimeoutError = error
        assert_type(error.holders, tuple[interlock.Standing, ...])
        assert_type(error.ahead, int)
        raise timeout from None
    except interlock.LeaseLost as error:
        runtime: RuntimeError = error
        assert_type(error.cause, str)
        raise runtime from None
    except interlock.StoreUnavailable as error:
        connection: ConnectionError = error
        raise connection from None
