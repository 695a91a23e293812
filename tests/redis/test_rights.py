"""A user may lack any right, and a server any command: a script is refused as a whole or done as a whole."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import RedisStore, open_url
from interlock.backends.redis.errors import COMMANDS
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import EVERYTHING, Claim, Granted, NoAnswer, Renewal, Renewed
from interlock.testing.servers.redis import Server, running
from tests.redis.waiter import Waiter

LACKING = [
    word for word in COMMANDS.split() if word not in ("ping", "scan", "getrange", "subscribe", "unsubscribe")
]
Act = Callable[[RedisStore, str], Awaitable[object]]


def opened(url: str) -> RedisStore:
    return open_url(urlsplit(url), Threads(), asynchronous=False)


class Users:
    """A store for a user who lacks one command, or all channels; and one who lacks nothing."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self.admin = stack.enter_context(redis.Redis(port=server.port))
        self._stores: dict[str, RedisStore] = {}
        self.with_source = self.store(opened(server.url()))

    def store(self, store: RedisStore) -> RedisStore:
        self._stack.callback(lambda: drive(store.close()))
        return store

    def without(self, lack: str) -> RedisStore:
        if lack not in self._stores:
            rules = ["resetchannels"] if lack == "channels" else ["allchannels", f"-{lack}"]
            self.admin.execute_command("ACL", "SETUSER", lack, "on", ">pw", "~*", "+@all", *rules)
        return self.named(lack)

    def named(self, name: str) -> RedisStore:
        if name not in self._stores:
            self._stores[name] = self.store(opened(f"redis://{name}:pw@127.0.0.1:{self._server.port}/0"))
        return self._stores[name]


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    with running() as server, ExitStack() as stack:
        yield Users(server, stack)


def claims(name: str, *permits: int, capacity: int = 1) -> list[Claim]:
    return [
        Claim(name, f"{name}-{number}", 30.0, permits=wanted, capacity=capacity)
        for number, wanted in enumerate(permits)
    ]


LOCK, SEMAPHORE, READERS = ((1, 1, 1), 1), ((2, 1, 2, 1), 3), ((EVERYTHING, 1, 1, EVERYTHING, 1), EVERYTHING)
WRITER = EVERYTHING
ACTS: dict[str, tuple[tuple[tuple[int, ...], int], Act]] = {
    "a lock's first claim": (((), 1), lambda s, n: s.claim(Claim(n, "new", 30.0))),
    "a lock's waiter": (LOCK, lambda s, n: s.claim(Claim(n, "new", 30.0))),
    "a lock's waiter that looks again": (LOCK, lambda s, n: s.claim(Claim(n, f"{n}-1", 30.0))),
    "a semaphore's claim": (((1,), 3), lambda s, n: s.claim(Claim(n, "new", 30.0, 2, 3))),
    "a semaphore's waiter": (SEMAPHORE, lambda s, n: s.claim(Claim(n, "new", 30.0, 2, 3))),
    "a lock's release": (((1,), 1), lambda s, n: s.release(n, f"{n}-0")),
    "a lock's hand-over": (LOCK, lambda s, n: s.release(n, f"{n}-0")),
    "a lock that lingers": (LOCK, lambda s, n: s.release(n, f"{n}-0", 20.0)),
    "a waiter that leaves": (LOCK, lambda s, n: s.release(n, f"{n}-1")),
    "a semaphore's hand-over": (SEMAPHORE, lambda s, n: s.release(n, f"{n}-0")),
    "a writer that lets readers in": (READERS, lambda s, n: s.release(n, f"{n}-0")),
    "a lock's renewal": (
        LOCK,
        lambda s, n: s.renew([Renewal(n, f"{n}-{i}", 60.0, waiting=i > 0) for i in (0, 1)]),
    ),
    "a semaphore's renewal": (
        SEMAPHORE,
        lambda s, n: s.renew([Renewal(n, f"{n}-{i}", 60.0, waiting=i > 1) for i in range(4)]),
    ),
    "a writer that becomes a reader": (
        READERS,
        lambda s, n: s.renew([Renewal(n, f"{n}-0", 30.0, note="new", permits=1)]),
    ),
    "an eviction": (LOCK, lambda s, n: s.evict(n, None, "a drill")),
    "an eviction of sharers": (SEMAPHORE, lambda s, n: s.evict(n, None, "a drill")),
    "an eviction of a waiter": (SEMAPHORE, lambda s, n: s.evict(n, f"{n}-2", "a drill")),
    "a look": (LOCK, lambda s, n: s.inspect(n)),
    "a register": (((), 1), lambda s, n: s.compare_and_set(n, 0, "value", "id")),
}


def prepared(users: Users, act: str) -> tuple[str, list[Claim]]:
    (permits, capacity), _ = ACTS[act]
    name = uuid4().hex[:8]
    standing = claims(name, *permits, capacity=capacity)
    for claim in standing:
        drive(users.with_source.claim(claim))
    return name, standing


def state(users: Users, name: str) -> object:
    """What counts, without the names of this try."""
    queue = drive(users.with_source.inspect(name))
    outline = [
        (s.id.removeprefix(name), s.permits, s.admitted, s.note)
        for s in queue.standings
        if not s.id.startswith("lingering")
    ]
    lingering = [s.permits for s in queue.standings if s.id.startswith("lingering")]
    return queue.capacity, outline, lingering, drive(users.with_source.read(name)).value


@pytest.fixture(scope="module")
def after(users: Users) -> dict[str, object]:
    """What each act leads to when nothing is refused."""
    found: dict[str, object] = {}
    for act in ACTS:
        name, _ = prepared(users, act)
        drive(_done(ACTS[act][1](users.with_source, name)))
        found[act] = state(users, name)
    return found


async def _done(awaited: Awaitable[object]) -> object:
    return await awaited


@pytest.mark.parametrize("act", ACTS)
def test_each_script_is_refused_whole_or_done_whole(users: Users, after: dict[str, object], act: str) -> None:
    for lack in [*LACKING, "channels"]:
        name, standing = prepared(users, act)
        before = state(users, name)
        refused: Exception | None = None
        try:
            drive(_done(ACTS[act][1](users.without(lack), name)))
        except (StoreUnfit, StoreUnavailable) as error:
            refused = error
        now = state(users, name)
        assert now in (before, after[act]), f"without {lack} ({refused}): {now}, from {before}"
        if refused is None:
            assert now == after[act], f"without {lack}: nothing was said, and {now}"
        if lack in ("publish", "channels"):
            assert refused is None, f"without {lack}: {refused}"
        nothing_is_left(users, name, [claim.id for claim in standing] + ["new"], ACTS[act][0][1])


def nothing_is_left(users: Users, name: str, ids: list[str], capacity: int) -> None:
    """When all have left, the whole capacity can be had: no permit was counted twice, or lost."""
    drive(users.with_source.evict(name, None, "what lingers goes, too"))
    for id in ids:
        drive(users.with_source.release(name, id))
    for _ in range(2):
        drive(users.with_source.evict(name, None, "those who were let in"))
    whole = Claim(name, uuid4().hex, 30.0, permits=capacity, capacity=capacity)
    answer = drive(users.with_source.claim(whole))
    assert isinstance(answer, Granted), answer
    assert [s.id for s in drive(users.with_source.inspect(name)).standings] == [whole.id]
    drive(users.with_source.release(name, whole.id))


def test_a_renewal_that_is_refused_leaves_the_others_of_its_batch_alone(users: Users) -> None:
    """One name has become another program's list, and beside another stands something that is not ours."""
    names = [f"batch-{uuid4().hex[:8]}-{number}" for number in range(4)]
    for name in names:
        drive(users.with_source.claim(Claim(name, "id", 30.0)))
    drive(users.with_source.claim(Claim(names[1], "waiter", 30.0)))
    users.admin.delete(names[1], names[2])
    users.admin.rpush(names[1], "theirs")
    users.admin.set(f"{{{names[2]}}}\x1f\x1fw", "nobody's")
    ids = ("id", "waiter", "id", "id")
    asked = [Renewal(name, id, 60.0, waiting=id == "waiter") for name, id in zip(names, ids, strict=True)]
    answers = drive(users.with_source.renew(asked))
    assert [answers[0], answers[1], answers[3]] == [Renewed(60.0)] * 3
    assert isinstance(answers[2], NoAnswer)
    assert "something that is no lock" in answers[2].why
    with pytest.raises(StoreUnfit, match="something that is no lock"):
        drive(users.with_source.renew(asked[2:3]))
    users.admin.flushall()


# ---- those who cannot publish ---------------------------------------------------------


@pytest.fixture(params=["a user without channels", "a server without PUBLISH"])
def mute(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of somebody who can wake nobody."""
    if request.param == "a server without PUBLISH":
        with running("--rename-command", "PUBLISH", "") as server:
            yield server.url()
    else:
        with running() as server, redis.Redis(port=server.port) as admin:
            admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "resetchannels")
            yield f"redis://app:pw@127.0.0.1:{server.port}/0"


def test_a_writer_and_a_reader_never_hold_together(mute: str) -> None:
    ours, theirs = (interlock.connect(mute) for _ in range(2))
    reader = ours.rwlock("x").read().acquire()
    assert reader
    written: list[Any] = []
    writer = threading.Thread(target=lambda: written.append(theirs.rwlock("x").write().acquire(timeout=20)))
    writer.start()
    while not ours.inspect("x").waiters:
        time.sleep(0.001)
    reader.release()
    writer.join(20)
    assert written[0]
    assert not ours.rwlock("x").read().acquire(blocking=False)
    assert [holder.token for holder in theirs.inspect("x").holders] == [written[0].token]
    written[0].release()
    assert ours.rwlock("x").read().acquire(timeout=5)
    ours.close()
    theirs.close()


def test_waiters_that_nobody_wakes_look_for_themselves_and_it_is_said_once(
    mute: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "interlock")
    ours, theirs = (interlock.connect(mute) for _ in range(2))
    for name in ("x", "y"):
        with ours.lock(name):
            waiter = Waiter(theirs, name)
        began = time.monotonic()
        waiter.join(30)
        assert waiter.lease
        assert time.monotonic() - began < 5, "it slept until something lapsed"
        waiter.lease.release()
    said = [record for record in caplog.records if "does not let this user publish" in record.getMessage()]
    assert 1 <= len(said) <= 2, "each of two clients says so once"
    ours.close()
    theirs.close()


def test_an_event_that_nobody_is_told_of_is_seen(mute: str) -> None:
    ours, theirs = (interlock.connect(mute) for _ in range(2))
    woken = threading.Event()

    def wait() -> None:
        if theirs.event("e").wait(30):
            woken.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.1)
    ours.event("e").set()
    assert woken.wait(5)
    waiter.join()
    ours.close()
    theirs.close()


def test_a_waiter_that_was_let_in_by_somebody_mute_is_told_by_its_own_renewal() -> None:
    """It could be woken, so it sleeps; who let it in could not wake it. Its place is renewed every two seconds."""
    with running() as server, redis.Redis(port=server.port) as admin:
        admin.execute_command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels")
        ours = interlock.connect(f"redis://mute:pw@127.0.0.1:{server.port}/0", ttl=30)
        theirs = interlock.connect(server.url(), ttl=6)
        lease = ours.lock("x").acquire()
        assert lease
        waiter = Waiter(theirs, "x")
        began = time.monotonic()
        lease.release()
        waiter.join(30)
        assert waiter.lease
        assert time.monotonic() - began < 5, "it slept until it would have looked by itself"
        waiter.lease.release()
        ours.close()
        theirs.close()
