"""What tools such as the command line need of the API: an error instead of None, a note, a cause, a call site, an early word of an eviction."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import aio, events
from interlock.testing.lag import at_most

URL = "memory://for-tools"


@pytest.fixture
def client() -> Iterator[interlock.Client]:
    with interlock.connect(URL) as client:
        yield client


def makers(client: Any, **options: Any) -> dict[str, Any]:
    return {
        "lock": client.lock("x", **options),
        "rlock": client.rlock("x", **options),
        "read": client.rwlock("x", **options).read(),
        "write": client.rwlock("x", **options).write(),
        "semaphore": client.semaphore("x", 2, **options),
        "bounded": client.bounded_semaphore("x", 2, **options),
    }


KINDS = ["lock", "rlock", "read", "write", "semaphore", "bounded"]


def in_a_thread(work: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(10)
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_acquire_or_raise_returns_a_lease_or_names_the_holder(client: interlock.Client, kind: str) -> None:
    lease = makers(client)[kind].acquire_or_raise()
    assert lease.check() is None
    lease.release()
    with interlock.connect(URL) as other:
        if kind in ("semaphore", "bounded"):
            held = makers(other)[kind].acquire_or_raise(permits=2)
        else:
            held = makers(other)["write" if kind in ("read", "write") else "lock"].acquire_or_raise()
        for arguments in ((False,), (True, 0.05)):
            with pytest.raises(interlock.AcquireTimeout) as caught:
                makers(client)[kind].acquire_or_raise(*arguments)
            assert [holder.token for holder in caught.value.holders] == [held.token]
        assert not client.inspect("x").waiters


def test_a_multilock_is_taken_whole_or_raises(client: interlock.Client) -> None:
    with interlock.connect(URL) as other, other.lock("b") as held:
        with pytest.raises(interlock.AcquireTimeout) as caught:
            client.multilock(["a", "b"]).acquire_or_raise(timeout=0.05)
        assert [holder.token for holder in caught.value.holders] == [held.token]
        assert not client.inspect("a").standings
    leases = client.multilock(["a", "b"]).acquire_or_raise()
    assert sorted(leases.tokens) == ["a", "b"]
    leases.release()

    async def main() -> None:
        async with aio.connect(URL) as twin, twin.lock("b"):
            with pytest.raises(interlock.AcquireTimeout):
                await twin.multilock(["a", "b"]).acquire_or_raise(False)
            await (await twin.multilock(["a", "c"]).acquire_or_raise()).release()

    asyncio.run(main())


def test_acquire_or_raise_on_a_loop() -> None:
    async def main() -> None:
        async with aio.connect(URL) as client, aio.connect(URL) as other:
            for kind in KINDS:
                lease = await asyncio.create_task(makers(client)[kind].acquire_or_raise())
                lease.check()
                await lease.release()
            async with other.rwlock("y").write() as held:
                for lock in (client.rwlock("y").read(), client.rwlock("y").write()):
                    with pytest.raises(interlock.AcquireTimeout) as caught:
                        await lock.acquire_or_raise(timeout=0.05)
                    assert [holder.token for holder in caught.value.holders] == [held.token]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_stands_beside_the_holder(client: interlock.Client, kind: str) -> None:
    with makers(client, note="run 17, for März")[kind]:
        assert [standing.note for standing in client.inspect("x").standings] == ["run 17, for März"]


def test_multilocks_and_runs_carry_notes_too(client: interlock.Client) -> None:
    with client.multilock(["a", "b"], note="both"), client.once("c", note="once"):
        assert [client.inspect(name).holders[0].note for name in "abc"] == ["both", "both", "once"]


def test_a_note_stays_its_holders_when_the_lock_changes_hands(client: interlock.Client) -> None:
    """A claim that is passed on within a client would keep the note of another."""
    lease = client.lock("x", note="first").acquire()
    assert lease

    def wait() -> Any:
        with client.lock("x", note="second") as heir:
            return heir.token, client.inspect("x").holders[0].note

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(wait()))
    thread.start()
    while not client.inspect("x").waiters:
        time.sleep(0.001)
    lease.renew()
    assert client.inspect("x").holders[0].note == "first"
    lease.release()
    thread.join(10)
    assert found[0][1] == "second"


@pytest.mark.parametrize("note", ["two\nlines", "\x1f1\x1fsomebody", "nul\x00", "\ud800", "x" * 4097])
def test_a_note_that_is_not_one_line_of_text_is_refused(client: interlock.Client, note: str) -> None:
    with pytest.raises(interlock.InvalidSetting, match="a note"):
        client.lock("x", note=note)
    with pytest.raises(TypeError, match="a note is a str"):
        client.lock("x", note=7)  # type: ignore[arg-type]


def test_the_cause_of_a_loss_is_data(client: interlock.Client) -> None:
    lease = client.lock("x", ttl=5).acquire_or_raise()
    assert lease.cause == ""
    client.evict("x", reason="for the test")
    with pytest.raises(interlock.LeaseLost):
        lease.renew()
    assert lease.cause == "evicted" == lease.loss().cause
    short = client.lock("y", ttl=0.1, renew=False).acquire_or_raise()
    while not short.cause:  # nobody else asks for the state
        time.sleep(0.005)
    assert short.cause == "lapsed"
    released = client.lock("z").acquire_or_raise()
    released.release()
    assert released.cause == ""


@pytest.mark.parametrize(
    "options", [{}, {"renew": False}, {"max_hold": 25.0}], ids=["renewed", "not renewed", "bounded"]
)
def test_whoever_waits_for_the_loss_hears_of_an_eviction_at_once(
    client: interlock.Client, options: Any
) -> None:
    lease = client.lock("x", ttl=30, **options).acquire_or_raise()
    assert lease.wait_for_loss(timeout=0.05) is False
    threading.Timer(0.2, lambda: client.evict("x", reason="for the test")).start()
    began = time.monotonic()
    assert lease.wait_for_loss(timeout=9) is True
    assert time.monotonic() - began < 9  # the next renewal is due after 10
    assert lease.cause == "evicted"
    assert lease.wait_for_loss() is True


def test_waiting_for_the_loss_prolongs_no_lease_that_is_not_renewed(client: interlock.Client) -> None:
    lease = client.lock("x", ttl=1, renew=False).acquire_or_raise()
    deadline = lease.deadline
    assert lease.wait_for_loss(timeout=5) is True
    assert (lease.deadline, lease.cause) == (deadline, "lapsed")


def test_waiting_for_the_loss_ends_with_the_release(client: interlock.Client) -> None:
    lease = client.lock("x").acquire_or_raise()
    threading.Timer(0.1, lease.release).start()
    assert lease.wait_for_loss(timeout=20) is True
    assert lease.cause == ""


def test_waiting_for_the_loss_ends_with_a_release_that_leaves_a_min_hold(client: interlock.Client) -> None:
    lease = client.lock("min_hold", min_hold=20).acquire_or_raise()
    threading.Timer(0.1, lease.release).start()
    with at_most(3):
        assert lease.wait_for_loss(timeout=9) is True


ENDS: dict[str, dict[str, Any]] = {
    "lapsed": {"renew": False},
    "max_hold": {"max_hold": 0.5},
    "owner_ended": {},
}


@pytest.mark.parametrize("cause", ENDS)
def test_whoever_waits_for_the_loss_hears_in_time_what_the_clock_ends(
    cause: str, client: interlock.Client
) -> None:
    lock = client.lock("x", ttl=1, **ENDS[cause])
    lease = in_a_thread(lock.acquire_or_raise) if cause == "owner_ended" else lock.acquire_or_raise()
    with at_most(2.5):
        assert lease.wait_for_loss(timeout=9) is True
    assert lease.cause == cause


@pytest.mark.parametrize("cause", ["lapsed", "max_hold"])
def test_a_task_that_waits_for_the_loss_hears_in_time_what_the_clock_ends(cause: str) -> None:
    async def main() -> None:
        async with aio.connect(URL) as client:
            lease = await client.lock("x", ttl=1, **ENDS[cause]).acquire_or_raise()
            with at_most(2.5):
                assert await lease.wait_for_loss(timeout=9) is True
            assert lease.cause == cause

    asyncio.run(main())


def test_a_task_waits_for_the_loss() -> None:
    async def main() -> None:
        async with aio.connect(URL) as client:
            lease = await client.lock("x", ttl=30).acquire_or_raise()
            watching = asyncio.create_task(lease.wait_for_loss(timeout=9))
            await client.evict("x", reason="for the test")
            assert await watching is True
            assert lease.cause == "evicted"

    asyncio.run(main())


def test_a_call_site_stands_for_thread_and_line() -> None:
    with interlock.connect(URL, call_site="nightly import") as client:
        with client.lock("x"):
            caller = client.inspect("x").holders[0].caller
            assert (caller.thread, caller.site) == ("", "nightly import")
            assert caller.host
            assert caller.pid
    with pytest.raises(TypeError, match="call_site is a str"):
        interlock.connect(URL, call_site=7)  # type: ignore[arg-type]

    async def main() -> None:
        async with aio.connect(URL, call_site="nightly import") as client, client.lock("x"):
            assert (await client.inspect("x")).holders[0].caller.site == "nightly import"

    asyncio.run(main())


def test_without_the_log_the_listener_still_hears(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    caplog.set_level(logging.DEBUG, "interlock")
    for listener in (heard.append, None):
        with interlock.connect(URL, log=False, listener=listener) as client, client.lock("x"):
            pass
    assert [type(event) for event in heard] == [events.Acquired, events.Released]
    assert not caplog.records


def test_these_options_travel_to_another_process(tmp_path: Any) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db", log=False, call_site="here") as client:
        with pickle.loads(pickle.dumps(client)) as again:
            with again.lock("x"):
                assert client.inspect("x").holders[0].caller.site == "here"


def test_inspect_shows_only_so_many_from_the_front(client: interlock.Client) -> None:
    semaphore = client.semaphore("x", 3)
    leases = [semaphore.acquire_or_raise() for _ in range(3)]
    assert [standing.token for standing in client.inspect("x", limit=2).standings] == [
        lease.token for lease in leases[:2]
    ]
    for limit in (0, -1):
        with pytest.raises(interlock.InvalidSetting, match="limit must be"):
            client.inspect("x", limit=limit)


def test_a_writers_min_hold_keeps_writers_out_after_it_became_a_reader(client: interlock.Client) -> None:
    both = client.rwlock("x", min_hold=0.6)
    began = time.monotonic()
    with both.write(), both.read():
        pass
    with interlock.connect(URL) as other:
        with other.rwlock("x").write():
            assert time.monotonic() - began >= 0.6


def test_the_store_itself_can_be_asked(client: interlock.Client) -> None:
    assert client.store.traits is client.traits
    assert client.store.liveness_byte() is None
