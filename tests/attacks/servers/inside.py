"""Attacks from inside the process of a client, on a real server: threads, signals, forks, loops, and what the system refuses."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._core import timing
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable
from interlock.testing.lag import at_most, stretched
from tests.attacks.servers.site import Site, nothing_left, ticking
from tests.field.process import ENVIRONMENT
from tests.field.strikes import struck
from tests.patience import PATIENCE, until

THREADS = 40
SPARE = 0.25  # seconds by which a call may be late beyond the grace that it has for its last request


class Inside:
    """Each runs on every server; `site` is a fixture of the file that names the store."""

    # ---- threads -----------------------------------------------------------------

    def test_forty_threads_back_to_back_cost_none_of_five_leases(self, site: Site) -> None:
        ttl, lost, failed, ended = stretched(1.5), list[str](), list[BaseException](), threading.Event()
        pairs = [0] * THREADS
        with interlock.connect(site.url(), ttl=ttl) as client:
            locks = [
                client.lock(f"held{n}", on_lost=lambda lease: lost.append(lease.resource)) for n in range(5)
            ]
            leases = [lock.acquire() for lock in locks]

            def work(number: int) -> None:
                try:
                    while not ended.is_set():
                        with client.lock(f"own{number}", ttl=30, timeout=PATIENCE):
                            pairs[number] += 1
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            granted = [lease.deadline for lease in leases if lease]
            until(
                lambda: (
                    failed
                    or all(
                        lease and lease.deadline > at + ttl for lease, at in zip(leases, granted, strict=True)
                    )
                )
            )
            until(lambda: failed or all(pairs))
            ended.set()
            for thread in threads:
                thread.join(PATIENCE)
            assert not failed, failed[0]
            assert not lost

    def test_exceptions_thrown_into_threads_leave_nothing_held_and_the_client_usable(
        self, site: Site
    ) -> None:
        words = [sys.executable, "-m", "tests.redis.throwing", site.url(), "1.5"]
        done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=3 * PATIENCE)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
        told = json.loads(done.stdout)
        assert told["struck"] > 20
        assert told["done"] == 20, "connections were lost"
        assert told["left"] == []

    def test_closing_beside_threads_that_acquire_leaves_no_claim(self, site: Site) -> None:
        url, odd = site.url(), list[BaseException]()

        def take(client: interlock.Client, name: str) -> None:
            try:
                client.lock(name).acquire()
                client.lock(f"{name}'").acquire(blocking=False)
            except (ClientClosed, StoreUnavailable):
                pass
            except BaseException as error:
                odd.append(error)

        with interlock.connect(url) as judge, judge.lock("warm"):
            for number in range(4):
                client = interlock.connect(url)
                names = [f"{number}-{n}" for n in range(6)]
                threads = [threading.Thread(target=take, args=(client, name)) for name in names]
                for thread in threads:
                    thread.start()
                if number:  # the first time while all of them connect, later while some have their lease
                    until(partial(_holds, client))
                client.close()
                for thread in threads:
                    thread.join(PATIENCE)
                    assert not thread.is_alive()
            assert not odd
            until(lambda: list(judge.scan()) == ["warm"])

    # ---- clocks --------------------------------------------------------------------

    @pytest.mark.parametrize("leap", [3600, -3600])
    def test_setting_the_clock_of_the_client_changes_nothing(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, leap: int
    ) -> None:
        url, ttl, tokens = site.url(), stretched(1.5), list[int]()

        def take_after(client: interlock.Client) -> None:
            with client.lock("x", timeout=PATIENCE) as lease:
                tokens.append(lease.token)

        with interlock.connect(url, ttl=ttl) as client, interlock.connect(url, ttl=ttl) as other:
            held = client.lock("x").acquire()
            assert held
            waiter = threading.Thread(target=take_after, args=(other,))
            waiter.start()
            until(lambda: client.inspect("x").waiters)
            now, now_ns = time.time, time.time_ns
            monkeypatch.setattr(time, "time", lambda: now() + leap)
            monkeypatch.setattr(time, "time_ns", lambda: now_ns() + leap * 10**9)
            granted = held.deadline
            until(lambda: held.deadline > granted + ttl)
            with at_most(0.2 + stretched(SPARE)):
                assert client.lock("x").acquire(timeout=0.2) is None
            held.check()
            assert not tokens
            with at_most(stretched(1.0), "the waiter was not woken"):
                held.release()
                waiter.join(PATIENCE)
            with client.lock("x", timeout=PATIENCE) as later:
                assert held.token < tokens[0] < later.token

    # ---- signals -------------------------------------------------------------------

    def test_a_signal_that_raises_at_any_moment_leaves_no_claim_that_nobody_knows(self, site: Site) -> None:
        strikes, unknown, left = struck(site.url(), 150, 1)
        assert strikes > 50
        assert (unknown, left) == (0, 0)

    def test_a_harmless_signal_again_and_again_stretches_no_wait(self, site: Site) -> None:
        url = site.url()
        with (
            interlock.connect(url) as client,
            interlock.connect(url) as other,
            other.lock("x"),
            other.rwlock("rw").read(),
        ):
            condition, event = client.condition("c"), client.event("e")
            with condition, ticking():
                for wait in (
                    lambda: client.lock("x").acquire(timeout=0.2),
                    lambda: client.rwlock("rw").write().acquire(timeout=0.2),
                    lambda: event.wait(0.2),
                    lambda: condition.wait(0.2),
                ):
                    with at_most(0.2 + timing.GRACE_S + SPARE):
                        assert not wait()
            with site.frozen(), ticking(), at_most(0.3 + timing.GRACE_S + SPARE):
                with pytest.raises(StoreUnavailable):
                    client.lock("y").acquire(timeout=0.3)

    def test_a_harmless_signal_again_and_again_does_not_stretch_the_time_to_connect(self, site: Site) -> None:
        url = site.url()
        with interlock.connect(url, connect_timeout=0.3) as client, site.frozen(), ticking():
            with at_most(0.3 + 0.2 + timing.GRACE_S + SPARE), pytest.raises(StoreUnavailable):
                client.lock("x").acquire(timeout=0.2)

    def test_a_signal_handler_that_releases_or_closes_hangs_nobody(self, site: Site) -> None:
        """What is on its way while the handler closes the client lapses by itself at the latest, so the ttl is short."""
        url, ttl = site.url(), stretched(2.0)
        with interlock.connect(url) as judge:
            for closes in (False, True):
                client = interlock.connect(url, ttl=ttl)
                held = list[Any]()

                def tick(
                    client: interlock.Client = client, held: list[Any] = held, closes: bool = closes
                ) -> None:
                    if closes and len(held) == 1:
                        client.close()
                    elif held:
                        held.pop().release()

                held += [client.lock(f"held{n}").acquire() for n in range(8)]
                with ticking(0.02, tick), suppress(ClientClosed):
                    while held:
                        with client.lock("x", timeout=PATIENCE):
                            pass
                    assert not closes, "a client that was closed gave a lock"
                client.close()
                until(partial(nothing_left, judge))

    # ---- tasks and loops -------------------------------------------------------------

    def test_tasks_cancelled_twice_at_every_await_leave_nothing(self, site: Site) -> None:
        async def pair(client: aio.Client, name: str) -> None:
            async with client.lock(name), client.rwlock(f"{name}-shared").read():
                await asyncio.sleep(0)

        async def main(url: str) -> None:
            async with aio.connect(url) as client, client.lock("held") as held:
                through = step = 0
                while through < 3:
                    task = asyncio.ensure_future(pair(client, f"x{step % 4}"))
                    for _ in range(step):
                        await asyncio.sleep(0 if step < 12 else 0.0005 * 1.1 ** (step - 12))
                    task.cancel()
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task], timeout=PATIENCE)
                    assert task.done()
                    through += not task.cancelled()
                    step += 1
                held.check()

        url = site.url()
        asyncio.run(main(url))
        with interlock.connect(url) as judge:
            until(partial(nothing_left, judge))

    @pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
    def test_tasks_cancelled_while_the_server_hangs_are_back_soon_and_leave_nothing(
        self, site: Site, twice: bool
    ) -> None:
        url = site.url()
        asyncio.run(self._cancelled(url, site, twice))
        with interlock.connect(url) as judge:
            until(partial(nothing_left, judge))

    async def _cancelled(self, url: str, site: Site, twice: bool) -> None:
        async with aio.connect(url) as other, aio.connect(url, ttl=5) as client:
            theirs = await other.lock("wait").acquire()
            assert theirs
            ready = [asyncio.Event() for _ in WAYS]
            tasks = [asyncio.create_task(way(client, event)) for way, event in zip(WAYS, ready, strict=True)]
            await asyncio.gather(*(event.wait() for event in ready))
            while not (await other.inspect("wait")).waiters:
                await asyncio.sleep(0.005)
            with site.frozen():
                asking = [
                    asyncio.create_task(client.lock("new").acquire()),
                    asyncio.create_task(client.election("new").campaign("me")),
                ]
                await asyncio.sleep(0.05)  # they ask now, and are not answered
                # Half a second, where the grace is what it is on a quiet machine.
                with at_most(
                    2 * (timing.GRACE_S + timing.INTERRUPTED_RELEASE_S) + 0.05,
                    "a cancelled task was not back soon",
                ):
                    for task in (*tasks, *asking):
                        task.cancel()
                    if twice:
                        await asyncio.sleep(0.02)
                        for task in (*tasks, *asking):
                            task.cancel()
                    await asyncio.wait([*tasks, *asking])
            assert all(task.cancelled() for task in (*tasks, *asking))
            await theirs.release()

    # The streams of asyncio warn when they are collected after their loop has ended; nobody is left who could close them.
    # If the warning were an error, pytest would keep it with its frames, and those the connections of later loops.
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    def test_a_hundred_loops_on_one_client(self, site: Site) -> None:
        self._hundred_loops(site)
        gc.collect()  # here: a later test in this process would be blamed for the warnings

    def _hundred_loops(self, site: Site) -> None:
        url = site.url()
        client = aio.connect(url)
        tokens = list[int]()

        async def once() -> None:
            async with client.lock("x", timeout=PATIENCE) as lease:
                tokens.append(lease.token)

        async def end_with_waiters() -> None:
            waiting = [asyncio.ensure_future(client.lock("y").acquire()) for _ in range(3)]
            while not (await client.inspect("y")).waiters:
                await asyncio.sleep(0.005)
            assert not any(task.done() for task in waiting)

        with interlock.connect(url) as judge, judge.lock("y"):
            asyncio.run(once())
            before = _files()
            for number in range(100):
                asyncio.run(end_with_waiters() if number % 20 == 7 else once())
            gc.collect()  # connections of loops that have ended
            assert _files() <= before + 8
            assert tokens == sorted(set(tokens))
            until(lambda: not judge.inspect("y").waiters)
            assert list(judge.scan()) == ["y"]
        asyncio.run(client.close())

    def test_below_uvloop_locks_are_handed_over_cancelled_and_given_back(self, site: Site) -> None:
        uvloop = pytest.importorskip("uvloop")
        url = site.url()

        async def main() -> None:
            async with aio.connect(url) as client, aio.connect(url) as other:
                async with other.lock("x"):
                    waiters = [
                        asyncio.create_task(client.lock("x", timeout=PATIENCE).acquire()) for _ in range(3)
                    ]
                    while len((await other.inspect("x")).waiters) < 1:
                        await asyncio.sleep(0.005)
                    waiters[0].cancel()
                for waiter in asyncio.as_completed(waiters[1:]):
                    lease = await waiter
                    assert lease
                    await lease.renew()
                    await lease.release()
                with pytest.raises(TimeoutError):
                    async with client.lock("x"), asyncio.timeout(0.1):
                        await client.event("never").wait()
                await client.register("r").update(lambda value: "v")
                assert (await other.register("r").read()).value == "v"

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        with interlock.connect(url) as judge:
            until(partial(nothing_left, judge))

    # ---- what the system refuses -------------------------------------------------------

    def test_without_threads_or_files_the_next_try_works(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = site.url()
        with interlock.connect(url) as judge, judge.lock("held"):
            client = interlock.connect(url)
            with no_more_files(), pytest.raises(InterlockError):
                client.lock("x").acquire(timeout=0.3)
            with client.lock("x", timeout=PATIENCE):
                pass
            client.close()
            client = interlock.connect(url)
            monkeypatch.setattr(threading.Thread, "start", never)
            with suppress(InterlockError, RuntimeError):
                client.lock("y").acquire(timeout=0.3)
            with suppress(InterlockError, RuntimeError):
                client.lock("held").acquire(timeout=0.3)
            monkeypatch.undo()
            with client.lock("y", timeout=PATIENCE):
                pass
            assert client.lock("held").acquire(timeout=0.1) is None
            client.close()
            until(lambda: list(judge.scan()) == ["held"])

    # ---- forks, and the ends of a program -------------------------------------------------

    def test_a_fork_while_threads_wait_and_connect_disturbs_nobody(self, site: Site) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FORKS, site.url()],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        assert done.stdout.split() == ["children", "[0,", "0,", "0,", "0]", "waiter", "True"], done.stderr[
            -3000:
        ]

    def test_however_a_program_ends_its_locks_are_free_at_once_or_after_a_ttl(self, site: Site) -> None:
        ttl = round(stretched(1.5), 2)
        kind, long, short = (
            ("return", "raise", "exit", "thread", "daemon", "loop", "interrupt"),
            site.url(),
            site.url(session=ttl),
        )
        with interlock.connect(long) as judge, interlock.connect(short, ttl=ttl) as later:
            for client in (judge, later):
                with client.lock("first"):
                    pass  # what a store needs is there: ten programs that make it at once are another test
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", ENDS, long, short, f"{ttl}"],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=2 * PATIENCE,
            )
            assert "all have ended" in done.stdout, done.stderr[-3000:]
            assert sorted(done.stdout.split()[:-3]) == sorted([*kind, "_exit", "sigterm", "sigkill"]), (
                done.stderr[-3000:]
            )
            assert list(judge.scan()) == [], "these were not released when their programs ended"
            until(partial(nothing_left, later))

    def test_greenlets_that_pause_wait_and_compute_lose_nothing(self, site: Site) -> None:
        pytest.importorskip("gevent")
        words = [sys.executable, "-m", "tests.redis.greenlets", "gevent", "check", site.url()]
        done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=3 * PATIENCE)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
        found: dict[str, Any] = json.loads(done.stdout)
        assert found.pop("after a pause") < 5
        assert found.pop("passed on after") < 5, "nobody was woken, and all looked for themselves"
        assert found.pop("told after") < 12, "the keeper's thread did not wake the greenlet"
        assert found == {"lost while computing": False, "told": True, "called back": ["evicted"]}


# ---- what is cancelled while the server hangs ------------------------------------------


async def _body(client: aio.Client, ready: asyncio.Event) -> None:
    async with client.lock("body"):
        ready.set()
        await asyncio.sleep(PATIENCE)


async def _several(client: aio.Client, ready: asyncio.Event) -> None:
    async with client.multilock(["several1", "several2", "several3"]):
        ready.set()
        await asyncio.sleep(PATIENCE)


async def _reader(client: aio.Client, ready: asyncio.Event) -> None:
    async with client.rwlock("reader").read():
        ready.set()
        await asyncio.sleep(PATIENCE)


async def _wait(client: aio.Client, ready: asyncio.Event) -> None:
    ready.set()
    await client.lock("wait").acquire()


async def _event(client: aio.Client, ready: asyncio.Event) -> None:
    ready.set()
    await client.event("event").wait()


async def _condition(client: aio.Client, ready: asyncio.Event) -> None:
    condition = client.condition("condition")
    async with condition:
        ready.set()
        await condition.wait()


WAYS = (_body, _several, _reader, _wait, _event, _condition)


# ---- what the system refuses -------------------------------------------------------------


def _holds(client: interlock.Client) -> bool:
    return bool(client._core.leases)


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open nothing more: neither a file nor a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    taken = list[int]()
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def never(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


FORKS = """
import os, signal, sys, threading, time, interlock
url = sys.argv[1]
client, holder = interlock.connect(url), interlock.connect(url)
held, got, over = holder.lock("x").acquire(), [], threading.Event()

def wait():
    with client.lock("x", timeout=60):
        got.append(True)

def connect():
    while not over.is_set():
        with interlock.connect(url) as new, new.lock("connecting", timeout=60):
            pass

waiter = threading.Thread(target=wait)
waiter.start()
connecting = threading.Thread(target=connect)
connecting.start()
while not holder.inspect("x").waiters:
    time.sleep(0.005)
ends = []
for number in range(4):
    child = os.fork()
    if not child:
        signal.alarm(50)  # a child that hangs ends
        code = 1
        try:
            with client.lock(f"own{number}", timeout=40):
                code = 2 if client.lock("x").acquire(blocking=False) else 0
            client.close()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    ends.append(child)
print("children", [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ends])
over.set()
held.release()
waiter.join(60)
print("waiter", bool(got), flush=True)
connecting.join(60)
"""

ENDS = """
import asyncio, os, signal, sys, threading, time
import interlock
from interlock import aio
from interlock._core import timing
long, short, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
ends = ("return", "raise", "exit", "thread", "daemon", "loop", "interrupt", "_exit", "sigterm", "sigkill")
children = []
for end in ends:
    child = os.fork()
    if not child:
        break
    children.append(child)
else:
    for child in children:
        os.waitpid(child, 0)
    print("all have ended", flush=True)
    os._exit(0)

def hold(end, then):
    held.append(client.lock(end).acquire())
    print(end, flush=True)
    then()

held = []
if end == "loop":
    async def leave():
        held.append(await aio.connect(long).lock(end).acquire())
        print(end, flush=True)
    asyncio.run(leave())
    sys.exit(0)
client = interlock.connect(short if end in ("_exit", "sigterm", "sigkill") else long, ttl=ttl if end in ("_exit", "sigterm", "sigkill") else 30)
if end in ("thread", "daemon"):
    then = (lambda: time.sleep(0.1)) if end == "thread" else (lambda: time.sleep(60))
    thread = threading.Thread(target=hold, args=(end, then), daemon=end == "daemon")
    thread.start()
    while not held:
        time.sleep(0.005)
    sys.exit(0)
hold(end, lambda: None)
if end == "raise":
    raise ValueError("as a program may end")
elif end == "exit":
    sys.exit(3)
elif end == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
elif end == "_exit":
    os._exit(0)
elif end == "sigterm":
    os.kill(os.getpid(), signal.SIGTERM)
elif end == "sigkill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
