"""Claims live with their client's session: what that means when it ends, is replaced, or is shorter than was asked."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock._core.states import State
from interlock._runtime.threads import Threads
from interlock._support.wording import duration
from interlock.backends.kit import listing
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.listing import MIN_BULK_RENEWALS
from interlock.backends.zookeeper import renewals as zookeeper_renewals
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.deadline_rule import ConfirmedWrites
from interlock.backends.zookeeper.handler import Handler
from interlock.backends.zookeeper.session_client import Session
from interlock.errors import (
    InterlockError,
    InvalidSetting,
    InvalidURL,
    LeaseLost,
    StoreUnavailable,
    StoreUnfit,
    Unreached,
)
from interlock.model import Claim, Gone, Granted, Renewal, Renewed
from interlock.testing.lag import at_most
from interlock.testing.servers.process import free_port
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.zookeeper import Ensemble, Servers, running
from interlock.urls import open_store
from tests.patience import PATIENCE, until, until_renewed
from tests.zookeeper.stores import expire, session_client_of


@pytest.fixture
def kazoo(ensemble: Servers) -> Iterator[Any]:
    client = KazooClient(hosts=ensemble.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def chroot(url: str) -> str:
    return "/" + url.split("?")[0].rpartition("/")[2]


def test_a_lost_session_loses_all_its_leases_at_once_and_says_so(url: str) -> None:
    lost: list[Any] = []
    with interlock.connect(url) as client:
        leases = [client.lock(f"x{n}", on_lost=lost.append).acquire() for n in range(5)]
        expire(session_client_of(client))
        for lease in leases:
            assert isinstance(lease, interlock.Lease)
            until(lambda lease=lease: lease.state is State.LOST)  # type: ignore[misc]
            with pytest.raises(LeaseLost, match="session"):
                lease.check()
        until(lambda: len(lost) == 5)
        with client.lock("x0") as again:
            assert again.token > max(lease.token for lease in leases if lease)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_session_that_ends_while_it_is_verified_keeps_nobody_waiting(url: str, replaced: bool) -> None:
    """No write can prove it any more: a claim on its way must not try for ever."""
    store: Any = open_store(url, Threads(), asynchronous=False)
    drive(store.claim(Claim("x", uuid4().hex, 30.0)))
    session_client, now = session_client_of(store), time.monotonic()
    resumed = Session(1, ConfirmedWrites(30.0, now - 30.0), now)  # nothing is proved of it
    if not replaced:
        drive(store.close())
        session_client.session = resumed  # as it looks before its loss is told
    told: list[BaseException] = []

    def verify() -> None:
        try:
            drive(store._requester.freshen(resumed, 20.0, Deadline(time.monotonic, 0.2)))
        except InterlockError as error:
            told.append(error)

    caller = threading.Thread(target=verify, daemon=True)
    caller.start()
    until(lambda: told)
    assert isinstance(told[0], Unreached)
    drive(store.close())


def test_a_renewal_of_many_slow_requests_keeps_its_caller_no_longer_than_one(url: str) -> None:
    """It is the keeper that asks, and others wait for its word that their lease is over."""
    store: Any = open_store(url, Threads(), asynchronous=False)
    claims = [Claim(f"x{n}", uuid4().hex, 30.0) for n in range(6)]
    for claim in claims:
        drive(store.claim(claim))
        drive(store._requester.one(requests.delete(store.node_of(claim.id)), Deadline(time.monotonic, 5.0)))
    session_client, send = session_client_of(store), session_client_of(store)._call
    session_client._call = lambda request, answer: threading.Timer(0.2, send, (request, answer)).start()  # type: ignore[method-assign]
    session_client.trips.clear()
    session_client.trips.append(0.25)
    with at_most(0.5 + 0.25), pytest.raises(StoreUnavailable):
        drive(store.renew([Renewal(claim.resource, claim.id, 30.0) for claim in claims], 0.1))
    session_client._call = send  # type: ignore[method-assign]
    drive(store.close())


def test_a_node_of_an_earlier_session_is_not_ours(url: str) -> None:
    store: Any = open_store(url, Threads(), asynchronous=False)
    claim = Claim("x", uuid4().hex, 30.0)
    first = drive(store.claim(claim))
    assert isinstance(first, Granted)
    # As after a reply that was lost, with another session meanwhile: the node stands, and another session made it.
    old, store._session_client.session = store._session_client.session, None
    drive(store.close())
    other: Any = open_store(url, Threads(), asynchronous=False)
    remnant = open_store(url, Threads(), asynchronous=False)
    drive(remnant.claim(claim))
    other._ledger._former[claim.id] = None
    again = drive(other.claim(claim))
    assert isinstance(again, Granted)
    assert again.token > first.token
    queue = drive(other.inspect("x"))
    assert [standing.token for standing in queue.standings] == [again.token]
    assert drive(remnant.renew([Renewal("x", claim.id, 30.0)])) == [Gone()]
    for opened in (other, remnant):
        drive(opened.close())
    assert old is not None


def test_a_claim_whose_reply_was_lost_is_found_again_under_the_same_token(url: str) -> None:
    store: Any = open_store(url, Threads(), asynchronous=False)
    claim = Claim("x", uuid4().hex, 30.0)
    first = drive(store.claim(claim))
    store._ledger.claims[claim.id].node = ""  # as if the answer had not come
    again = drive(store.claim(claim))
    assert again.token == first.token
    assert len(drive(store.inspect("x")).standings) == 1
    assert drive(store.release("x", claim.id)) is True
    drive(store.close())


def test_a_ttl_beyond_the_session_is_refused_where_it_is_known(ensemble: Servers) -> None:
    with pytest.raises(InvalidSetting, match=r"between 0\.5 s and 10 s"):
        interlock.connect(ensemble.fresh(session=10), ttl=30)
    with interlock.connect(ensemble.fresh(session=100), ttl=90) as client:  # the servers allow 60 s
        with pytest.raises(InvalidSetting, match="limit to 1 min"):
            client.lock("x").acquire()
        assert client.lock("x", ttl=60).acquire()


def without_session(url: str) -> str:
    return url.partition("?")[0]


@pytest.mark.parametrize("ttl", [2.0, 45.0])
def test_a_session_lives_as_long_as_the_ttl_of_its_client_so_a_killed_holder_blocks_no_longer(
    url: str, ttl: float
) -> None:
    with interlock.connect(without_session(url), ttl=ttl) as client:
        with client.lock("x") as lease:
            assert lease.ttl == ttl
        session = session_client_of(client).session
        assert session is not None
        assert session.timeout == pytest.approx(ttl, abs=0.01)
        with pytest.raises(InvalidSetting, match=f"and {duration(ttl)} on zookeeper"):
            client.lock("x", ttl=2 * ttl)
    kazoo = KazooClient(hosts=without_session(url).removeprefix("zookeeper://"), timeout=10.0)
    with interlock.connect(kazoo, ttl=ttl) as client, client.lock("x"):
        session = session_client_of(client).session
        assert session is not None
        assert session.timeout == pytest.approx(ttl, abs=0.01)


def test_the_usual_ttl_follows_the_session_where_the_servers_end_it_sooner() -> None:
    with running(1, extra=["maxSessionTimeout=3000"]) as ensemble:
        url = without_session(ensemble.fresh())
        with interlock.connect(url) as client:
            with client.lock("x") as lease:
                assert lease.ttl == pytest.approx(3.0, abs=0.01)
                began, before = time.monotonic(), lease.deadline
                until(lambda: lease.deadline > before + 3.5)
                assert time.monotonic() - began < PATIENCE
                lease.check()
            barrier, condition = client.barrier("b", 1), client.condition("c")
            barrier.wait(timeout=PATIENCE)
            with condition:
                assert not condition.wait(timeout=0.3)
            with pytest.raises(InvalidSetting, match=r"and 3(\.0)? s"):
                client.lock("x", ttl=4).acquire()
        with (
            interlock.connect(url, ttl=30) as client,
            pytest.raises(InvalidSetting, match=r"limit to 3(\.0)? s"),
        ):
            client.lock("x").acquire()

        async def same() -> None:
            async with aio.connect(url) as client, client.lock("x") as lease:
                assert lease.ttl == pytest.approx(3.0, abs=0.01)

        asyncio.run(same())


def test_waiters_of_barriers_and_conditions_live_with_a_session_that_is_shorter_than_their_time(
    ensemble: Servers,
) -> None:
    with interlock.connect(ensemble.fresh(session=6), ttl=6) as client:
        barrier, condition = client.barrier("b", 2), client.condition("c")
        woken: list[bool] = []

        def wait() -> None:
            barrier.wait(timeout=PATIENCE)
            with condition:
                barrier.wait(timeout=PATIENCE)
                woken.append(condition.wait(timeout=PATIENCE))

        waiter = threading.Thread(target=wait)
        waiter.start()
        barrier.wait(timeout=PATIENCE)
        barrier.wait(timeout=PATIENCE)
        with condition:
            condition.notify()
        waiter.join()
        assert woken == [True]


def test_min_hold_outlives_the_session_that_released_it(url: str, kazoo: Any) -> None:
    client = interlock.connect(url)
    began = time.monotonic()
    with client.lock("x", min_hold=2):
        pass
    client.close()
    folder = f"{chroot(url)}/interlock/x"
    (node,) = kazoo.get_children(folder)
    assert kazoo.exists(f"{folder}/{node}").ephemeralOwner == 0
    with interlock.connect(url) as other:
        assert not other.lock("x").acquire(blocking=False)
        (standing,) = other.inspect("x").standings
        assert standing.lingering
        assert 0 < standing.lapses_in <= 2
        assert other.lock("x").acquire(timeout=30)
        assert time.monotonic() - began > 1.9
        assert len(other.inspect("x").standings) == 1


def test_a_shorter_ttl_is_a_local_deadline_that_releases(url: str) -> None:
    with interlock.connect(url) as ours, interlock.connect(url) as theirs:
        lease = ours.lock("x", ttl=1.0, renew=False).acquire()
        assert lease
        assert theirs.lock("x").acquire(timeout=30)
        assert lease.state is State.LOST


def test_an_idle_session_is_proved_all_the_time_so_the_first_claim_after_a_pause_is_long(
    ensemble: Servers,
) -> None:
    with interlock.connect(ensemble.fresh(session=2), ttl=2) as client:
        client.lock("x").locked()
        session_client = session_client_of(client)
        for _ in range(20):
            time.sleep(0.2)
            assert session_client.session is not None
        lease = client.lock("x").acquire()
        assert isinstance(lease, interlock.Lease)
        assert lease.remaining() > 0.3
        lease.release()


def test_the_connection_going_is_doubt_and_its_return_ends_it(ensemble: Servers) -> None:
    with interlock.connect(ensemble.fresh(session=20), ttl=20) as client:
        lease = client.lock("x").acquire()
        assert isinstance(lease, interlock.Lease)
        deadline = lease.deadline
        states: list[State] = []
        session_client_of(client).on_doubt.append(lambda: states.append(lease.state))
        session_client_of(client)._client._connection._socket.shutdown(2)
        until(lambda: states)
        until(lambda: lease.state is State.HELD)
        assert lease.deadline >= deadline
        lease.release()


def test_many_claims_of_one_session_are_renewed_by_a_constant_number_of_requests(url: str) -> None:
    store: Any = open_store(url, Threads(), asynchronous=False)
    claims = [Claim(f"x{n}", uuid4().hex, 30.0) for n in range(40)]
    for claim in claims:
        drive(store.claim(claim))
    sent: list[Any] = []
    call = store._session_client._call

    def counted(request: Any, answer: Any) -> None:
        sent.append(request)
        call(request, answer)

    store._session_client._call = counted
    renewals = [Renewal(claim.resource, claim.id, 30.0) for claim in claims]
    assert all(isinstance(answer, Renewed) for answer in drive(store.renew(renewals)))
    sent.clear()  # the first made the session's own node, and swept
    assert all(isinstance(answer, Renewed) for answer in drive(store.renew(renewals)))
    assert len(sent) == 2
    store._session_client.no_ephemerals = True  # as a server below 3.6 answers
    store._requester._no_multi_read = True
    assert all(isinstance(answer, Renewed) for answer in drive(store.renew(renewals)))
    drive(store.close())


def test_renewals_of_many_claims_use_one_list_which_neither_hides_young_ones_nor_keeps_those_that_are_gone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 60,000 leases the list of a session is long, and getting it for each hundred of them would last longer than they do."""
    monkeypatch.setattr(zookeeper_renewals, "MANY_CLAIMS", 20)
    store: Any = open_store(url, Threads(), asynchronous=False)
    sent: list[Any] = []
    call = store._session_client._call

    def counted(request: Any, answer: Any) -> None:
        sent.append(type(request))
        call(request, answer)

    def entered(name: str) -> Renewal:
        claim = Claim(name, uuid4().hex, 30.0)
        drive(store.claim(claim))
        return Renewal(claim.resource, claim.id, 30.0)

    def renewed(renewals: list[Renewal]) -> list[Any]:
        return list(drive(store.renew(renewals)))

    renewals = [entered(f"x{n}") for n in range(MIN_BULK_RENEWALS + 1)]
    store._session_client._call = counted
    monkeypatch.setattr(listing, "RECENT_S", 0.0)
    first = renewed(renewals)
    assert requests.GetEphemerals in sent
    monkeypatch.setattr(listing, "RECENT_S", PATIENCE)
    sent.clear()
    second = renewed(renewals)
    assert all(isinstance(answer, Renewed) for answer in first + second)
    assert [answer.sent for answer in second] == [answer.sent for answer in first], "nothing new is known"
    assert not sent
    young = entered("young")
    assert isinstance(renewed([young, *renewals])[0], Renewed)
    gone = store._ledger.claims[renewals[0].id]
    drive(store._requester.one(requests.delete(gone.path), Deadline(store._runtime.now, PATIENCE)))
    monkeypatch.setattr(listing, "RECENT_S", 0.0)
    monkeypatch.setattr(listing, "MAX_TTL_PART", 0.0)
    assert isinstance(renewed(renewals)[0], Gone)
    sent.clear()
    assert isinstance(renewed(renewals[1:3])[0], Renewed)
    assert requests.GetEphemerals not in sent, "all were listed for a few"
    drive(store.close())


def test_closing_a_client_removes_every_claim_of_it_and_its_thread(url: str, kazoo: Any) -> None:
    before = threading.active_count()
    client = interlock.connect(url)
    for n in range(3):
        assert client.lock(f"x{n}").acquire()
    client.semaphore("s", 3).acquire()
    client.close()
    root = f"{chroot(url)}/interlock"
    assert all(
        not kazoo.get_children(f"{root}/{name}") for name in kazoo.get_children(root) if name[0] != "."
    )
    until(lambda: threading.active_count() <= before)


def test_a_users_own_client_gives_its_address_and_keeps_its_session(ensemble: Servers, kazoo: Any) -> None:
    place = f"/t-{uuid4().hex[:12]}"
    theirs = KazooClient(hosts=ensemble.hosts + place, timeout=20.0)
    theirs.start_async().wait(20)
    kazoo.ensure_path(place)
    theirs.create("/mine", b"", ephemeral=True)
    client = interlock.connect(theirs, ttl=10)
    with client.lock("x") as lease:
        assert f"zookeeper://127.0.0.1:{ensemble.ports[0]}" in repr(client)
        (node,) = kazoo.get_children(f"{place}/interlock/x")
        assert kazoo.exists(f"{place}/interlock/x/{node}").czxid == lease.token
    assert client.lock("x").acquire()
    client.close()
    assert kazoo.get_children(f"{place}/interlock/x") == []
    assert theirs.exists("/mine"), "the user's session went on"

    async def same() -> None:
        async with aio.connect(theirs, ttl=10) as client, client.lock("x"):
            assert len(kazoo.get_children(f"{place}/interlock/x")) == 1

    asyncio.run(same())
    theirs.stop()
    theirs.close()


def test_an_ensemble_that_is_not_there_is_named_in_time() -> None:
    began = time.monotonic()
    with interlock.connect(f"zookeeper://127.0.0.1:{free_port()}/x", connect_timeout=0.5) as client:
        with pytest.raises(Unreached, match=r"no server could be reached in 0\.5 s .*refused"):
            client.lock("x").acquire(blocking=False)
    assert time.monotonic() - began < 10


def test_idle_names_leave_nothing_behind_and_folders_that_vanish_are_made_again() -> None:
    """Containers go when they are empty: here every half second, on other servers once a minute."""
    with running(1, jvm=("-Dznode.container.checkIntervalMs=500",)) as ensemble:
        url = ensemble.fresh(session=20)
        admin = KazooClient(hosts=ensemble.hosts)
        admin.start()
        with interlock.connect(url, ttl=20) as client:
            end = time.monotonic() + 4
            number = 0
            while time.monotonic() < end:
                number += 1
                with client.lock(f"x{number % 50}"):
                    pass
            register = client.register("r")
            register.compare_and_set(register.read(), "1")
        root = f"{chroot(url)}/interlock"
        until(lambda: admin.get_children(root) == [".registers"])
        admin.stop()
        admin.close()


def test_evictions_are_swept_when_their_time_is_over(
    url: str, kazoo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.backends.zookeeper import operators, tombstones

    monkeypatch.setattr(operators, "REMEMBERED_S", -60.0)  # seconds, beside the session's 40
    monkeypatch.setattr(tombstones, "SWEEP_PERIOD_S", 0.0)
    gone = f"{chroot(url)}/interlock/.gone"
    with interlock.connect(url) as client:
        for n in range(3):
            client.lock(f"e{n}").acquire()
            client.evict(f"e{n}", reason="drill")
        assert len(kazoo.get_children(gone)) == 3
        store: Any = client._core.store
        store._tombstones._session_client.clock_offset += 100.0
        drive(store._tombstones.sweep(Deadline(store._runtime.now, 5.0)))
        assert kazoo.get_children(gone) == []


# ---- many claims in one session ------------------------------------------------------------

SMALL = 50_000  # bytes that the servers of this test accept in one piece


def test_a_session_does_not_grow_so_large_that_its_end_breaks_the_servers() -> None:
    """The leader writes a transaction of any length, but nobody can read it: with 40,000 claims, that leader could not be started again."""
    with running(jvm=[f"-Djute.maxbuffer={SMALL}"]) as ensemble:
        url = ensemble.fresh(jute_maxbuffer=SMALL)
        with interlock.connect(url, ttl=30.0) as client:
            leases: list[Any] = []

            def fill() -> None:
                while len(leases) < 60 * SMALL // 1000:
                    leases.append(client.lock(f"x{len(leases)}").acquire())

            with pytest.raises(
                StoreUnfit,
                match=f"this client has [0-9]{{3}} claims .* {SMALL} bytes of their jute.maxbuffer",
            ):
                fill()
            assert len(leases) > 0.9 * SMALL / 100
            leases.pop().release()
            leases.append(client.lock("y").acquire())
            expire(session_client_of(client))
            until(lambda: all(lease.state is State.LOST for lease in leases))
            assert client.lock("x0").acquire()
        with interlock.connect(url) as other:
            until(lambda: not list(other.scan()))
        assert sorted(node.mode() for node in ensemble.nodes) == ["follower", "follower", "leader"]
        for node in ensemble.nodes:
            node.kill()
        for node in ensemble.nodes:
            node.start()
        ensemble.ready()


def test_permits_that_are_given_back_do_not_make_a_session_too_large(ensemble: Servers) -> None:
    """What is left is written beside the claim: with one node for each, the session had 1.8 times the bytes that were permitted."""
    with interlock.connect(ensemble.fresh(jute_maxbuffer=SMALL), ttl=30.0) as client:
        places = [client.semaphore(f"s{number}", 2) for number in range(SMALL // 50)]
        taken: list[interlock.Semaphore] = []

        def fill() -> None:
            for place in places:
                assert place.acquire(permits=2)
                taken.append(place)

        with pytest.raises(StoreUnfit, match=r"jute\.maxbuffer"):
            fill()
        for place in taken:
            place.release(1)
        store: Any = client._core.store
        asked = requests.GetEphemerals(store._paths.root)
        paths = drive(store._requester.one(asked, Deadline(time.monotonic, 30.0))).get()
        assert len(paths) >= 2 * len(taken) > 300
        assert sum(len(path) + 4 for path in paths) < SMALL


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "64"])
def test_a_buffer_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidURL, match=r"jute\.maxbuffer"):
        interlock.connect(f"zookeeper://h/?jute_maxbuffer={text}")


def test_a_client_that_can_start_no_thread_closes_what_it_has_opened(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with interlock.connect(url, connect_timeout=PATIENCE) as client:
        gc.collect()
        gc.disable()  # it must not be the one who closes them
        try:
            before = files()
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", never)
                for _ in range(3):
                    with pytest.raises(Unreached, match="can't start new thread"):
                        client.lock("x").acquire(timeout=0.3)
            assert files() == before
        finally:
            gc.enable()
        with client.lock("x", timeout=PATIENCE):
            pass


def test_an_interrupt_when_the_connection_has_just_begun_leaves_one_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the connection ran, and nobody knew of it: the next call was sent to a client that was not there."""
    begin, strikes = Handler.spawn, [KeyboardInterrupt()]

    def interrupted(handler: Handler, loop: Callable[[], None]) -> None:
        begin(handler, loop)
        if strikes:
            raise strikes.pop()

    def connections() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "interlock-zookeeper"}

    # Those of earlier tests may end meanwhile.
    before = connections()
    with interlock.connect(url) as client:
        monkeypatch.setattr(Handler, "spawn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.lock("x").acquire()
        with client.lock("x", timeout=PATIENCE) as lease:
            until(lambda: len(connections() - before) == 1)
            lease.renew()
            lease.check()
        with client.lock("x", timeout=PATIENCE):
            pass
    until(lambda: not connections() - before)


def restarted_with(ensemble: Ensemble, number: int, longest: float) -> None:
    """Restart a server that permits no longer session than so many seconds."""
    node = ensemble.nodes[number]
    node.kill()
    node._extra = [f"maxSessionTimeout={longest * 1000:.0f}"]
    node.configure([])
    node.start()
    ensemble.ready()


@pytest.mark.parametrize("renew", [True, False])
def test_a_server_that_permits_a_shorter_session_shortens_all_leases_at_once(renew: bool) -> None:
    """They kept their deadlines, while the leader ended the session after the shorter time."""
    with running(1) as ensemble, interlock.connect(ensemble.url("a", session=30), ttl=30) as client:
        leases = [client.lock(f"x{number}", renew=renew).acquire() for number in range(3)]
        own = client.lock("own", ttl=1.5).acquire()
        held = [lease for lease in (*leases, own) if lease is not None]
        restarted_with(ensemble, 0, 4)
        session = session_client_of(client).session
        assert session is not None
        until(lambda: session.timeout == 4.0)
        assert max(lease.remaining() for lease in held) <= 4.0
        if renew:  # they are renewed for so long, in time
            until(lambda: all(lease.state is State.HELD and lease.ttl == 4.0 for lease in leases if lease))
            for _ in range(3):
                until_renewed(*(lease for lease in leases if lease is not None))
        ensemble.nodes[0].freeze()
        with at_most(4.0 + 0.5):
            for lease in held:
                until(lambda lease=lease: lease.state is State.LOST)  # type: ignore[misc]
        assert session_client_of(client).session is session, "no session was lost, only its time was over"


def test_a_stopped_holder_of_a_shortened_session_knows_its_end_when_it_wakes() -> None:
    """Stopped while it was connected with the shorter timeout: its first check may not pass on the old deadline."""
    program = (
        "import interlock, sys, time\n"
        "client = interlock.connect(sys.argv[1], ttl=30)\n"
        "lease = client.lock('x').acquire()\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    lease.check()\n"
        "    print('passed', flush=True)\n"
        "except interlock.LeaseLost:\n"
        "    print('lost', flush=True)\n"
    )
    with running(1) as ensemble, interlock.connect(ensemble.url("a", session=30)) as other:
        holder = subprocess.Popen(
            [sys.executable, "-c", program, ensemble.url("a", session=30)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with holder:
            try:
                assert holder.stdout is not None
                assert holder.stdin is not None
                assert holder.stdout.readline() == "held\n"
                restarted_with(ensemble, 0, 2)
                until(lambda: ensemble.nodes[0].word("cons").count("to=2000") >= 1)
                time.sleep(0.5)  # it is connected; it learns that a moment later
                holder.send_signal(signal.SIGSTOP)
                assert other.lock("x").acquire(timeout=PATIENCE)
                holder.stdin.write("check\n")
                holder.stdin.flush()
                holder.send_signal(signal.SIGCONT)
                assert holder.stdout.readline() == "lost\n"
            finally:
                holder.kill()


def test_waiters_enter_again_when_their_session_was_replaced_meanwhile(ensemble: Servers, url: str) -> None:
    """The network was away for longer than the session: what waits goes on waiting, within its own time."""
    with Proxy(ensemble.ports[0]) as proxy:
        place = url.split("?")[0].rpartition("/")[2]
        ours = f"zookeeper://127.0.0.1:{proxy.port}/{place}?session_timeout=2"
        with interlock.connect(ours) as client, interlock.connect(url) as judge:
            held = {name: judge.lock(name).acquire() for name in ("a", "b")}
            taken: list[Any] = []
            waiters = [
                threading.Thread(
                    target=lambda name=name: taken.append(client.lock(name, timeout=PATIENCE).acquire())
                )
                for name in held
            ]
            for waiter in waiters:
                waiter.start()
            until(lambda: all(judge.inspect(name).waiters for name in held))
            session = session_client_of(client).session
            assert session is not None
            proxy.set("hole")
            until(lambda: not any(judge.inspect(name).waiters for name in held))
            until(lambda: session_client_of(client).now() > session.writes.ends + 2 * session.timeout)
            proxy.heal()
            until(lambda: all(judge.inspect(name).waiters for name in held))
            for lease in held.values():
                assert lease
                lease.release()
            for waiter in waiters:
                waiter.join()
            assert len(taken) == len(held)
            assert all(taken)


def test_a_lease_outlives_a_move_to_a_server_that_permits_longer_sessions() -> None:
    """Its time is short, and it was lost before the first proof of the longer session."""
    ensemble = Ensemble(3)
    short, long, _ = ensemble.nodes
    short._extra = ["maxSessionTimeout=6000"]
    try:
        ensemble.start()
        with (
            Proxy(short.port) as proxy,
            interlock.connect(f"zookeeper://127.0.0.1:{proxy.port}/moved?session_timeout=50") as client,
        ):
            lease = client.lock("x").acquire()
            assert lease
            assert lease.ttl == 6.0
            before = lease.deadline
            proxy.aim(long.port)
            proxy.reset()
            until(lambda: lease.deadline > before + 6.0 or lease.lost.is_set())
            lease.check()
    finally:
        ensemble.close()
