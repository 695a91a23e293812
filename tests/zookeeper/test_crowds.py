"""Many waiters of one client on one name: what they cost, and that they come in, hand on and leave as a few do."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

import interlock
from interlock import aio
from interlock._core.admission import to_watch
from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.backends.zookeeper import requests
from interlock.backends.zookeeper.own_claims import SHORT_QUEUE_CLAIMS
from interlock.backends.zookeeper.paths import ClaimNode
from interlock.backends.zookeeper.queue_reads import OVERDUE_S, QueueRead
from interlock.backends.zookeeper.queue_view import QueueView
from interlock.backends.zookeeper.send_slots import MAX_CLAIMS_SENT, SLOT_LOST_S, SendSlots
from interlock.backends.zookeeper.store import ZooKeeperStore
from interlock.errors import ClientClosed, Evicted, HeldUp, SettingsMismatch
from interlock.model import EVERYTHING, Busy, Claim, Granted
from interlock.urls import open_store
from tests.patience import PATIENCE, until

MANY = 60
TTL = 30.0

NAMES = {
    requests.create("/", b"", []).type: "create",
    requests.delete("/").type: "delete",
    requests.list_children("/").type: "list",
    requests.get_data("/").type: "get",
    requests.MultiRead.type: "get many",
}


def counted(client: Any) -> Counter[str]:
    """The requests that a client sends from now on, by kind."""
    sent: Counter[str] = Counter()
    session_client = client._core.store._session_client
    call = session_client._call

    def counting(request: Any, answer: Any) -> None:
        sent[NAMES.get(request.type, "other")] += 1
        call(request, answer)

    session_client._call = counting
    return sent


def opened(url: str) -> Any:
    return open_store(url, Threads(), asynchronous=False)


def claim(**options: Any) -> Claim:
    return Claim("x", uuid4().hex, TTL, **options)


async def standing(client: aio.Client, count: int) -> None:
    """Wait until so many claims wait in the queue."""
    async with asyncio.timeout(PATIENCE):
        while len((await client.inspect("x")).waiters) < count:
            await asyncio.sleep(0.01)


# ---- what they cost ---------------------------------------------------------------------


def test_a_claim_that_is_alone_is_one_node_and_one_list(url: str) -> None:
    with interlock.connect(url, ttl=TTL) as client:
        client.lock("x").acquire().release()  # type: ignore[union-attr]
        sent = counted(client)
        lease = client.lock("x").acquire()
        assert lease
        assert sent == {"create": 1, "list": 1}
        lease.release()
        assert sent == {"create": 1, "list": 1, "delete": 1}


@pytest.mark.parametrize("waiters", [2, 32, 256])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_hand_over_costs_the_same_in_a_long_queue(url: str, waiters: int, clients: int) -> None:
    async def crowd() -> None:
        holding = aio.connect(url, ttl=TTL)
        ours = [aio.connect(url, ttl=TTL) for _ in range(clients)]
        first = await holding.lock("x").acquire()
        assert first
        sent = [counted(client) for client in ours]
        tokens: list[int] = []

        async def stand(number: int) -> None:
            async with ours[number % clients].lock("x") as lease:
                tokens.append(lease.token)

        tasks = [asyncio.create_task(stand(number)) for number in range(waiters)]
        await standing(holding, waiters)
        entering = sum(sent, Counter[str]())
        # Each client lists for its first claims, once for all those that came while a list was under way: a slow machine makes more of these.
        assert entering["list"] <= max(10 * clients, waiters // 4), entering
        assert entering["create"] <= waiters + 1 + 2 * clients, entering  # and the nodes of their sessions
        for one in sent:
            one.clear()
        await first.release()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        handing = sum(sent, Counter[str]())
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == waiters
        assert handing["list"] <= 4 * clients, handing  # the front is read once for many
        # Each watches its folder, itself and the one ahead, and another one if that has left; those between are read, once or twice.
        assert handing["get"] <= 4 * waiters + 4 * clients, handing
        assert handing["get many"] <= 3 * waiters, handing
        for client in (holding, *ours):
            await client.close()

    asyncio.run(crowd())


def test_readers_that_wait_for_one_writer_share_one_look(url: str) -> None:
    async def crowd() -> None:
        async with aio.connect(url, ttl=TTL) as writing, aio.connect(url, ttl=TTL) as ours:
            writer = await writing.rwlock("x").write().acquire()
            assert writer
            sent = counted(ours)
            tasks = [asyncio.create_task(ours.rwlock("x").read().acquire()) for _ in range(MANY)]
            await standing(writing, MANY)
            entering = sent["list"]
            sent.clear()  # on a slow machine each of them has asked meanwhile whether it still stands
            await writer.release()
            async with asyncio.timeout(PATIENCE):
                leases = await asyncio.gather(*tasks)
            assert all(leases)
            assert entering + sent["list"] <= 8, (entering, sent)
            assert sent["get"] + sent["get many"] <= MANY // 2, sent
            later = asyncio.create_task(writing.rwlock("x").write().acquire())
            await standing(writing, 1)
            for lease in leases:
                assert lease
                assert not later.done()
                await lease.release()
            async with asyncio.timeout(PATIENCE):
                assert await later

    asyncio.run(crowd())


def test_a_crowd_at_a_semaphore_fills_it_and_never_more(url: str) -> None:
    async def crowd() -> None:
        async with aio.connect(url, ttl=TTL) as ours, aio.connect(url, ttl=TTL) as theirs:
            inside, most = 0, 0

            async def stand(number: int) -> None:
                nonlocal inside, most
                client = ours if number % 3 else theirs
                lease = await client.semaphore("x", 3).acquire(permits=1 + number % 2)
                assert lease
                inside += 1 + number % 2
                most = max(most, inside)
                await asyncio.sleep(0.002)
                inside -= 1 + number % 2
                await lease.release()

            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(stand(number) for number in range(MANY)))
            assert most == 3

    asyncio.run(crowd())


# ---- how they leave ---------------------------------------------------------------------


@asynccontextmanager
async def crowded(
    url: str, ttl: float = 3.0
) -> AsyncIterator[tuple[aio.Client, aio.Lease, list[asyncio.Task[int]]]]:
    """A client of which a dozen tasks wait, in order, for a lock that another holds."""
    async with aio.connect(url, ttl=ttl) as holding, aio.connect(url, ttl=ttl) as ours:
        first = await holding.lock("x").acquire()
        assert first

        async def stand() -> int:
            async with ours.lock("x") as lease:
                return lease.token

        tasks: list[asyncio.Task[int]] = []
        for n in range(12):
            tasks.append(asyncio.create_task(stand()))
            await standing(holding, n + 1)
        yield ours, first, tasks
        await asyncio.gather(*tasks, return_exceptions=True)


def test_waiters_in_the_midst_of_a_crowd_may_leave(url: str) -> None:
    async def attacked() -> None:
        async with crowded(url) as (_, first, tasks):
            gone = [tasks[0], tasks[5], tasks[6], tasks[-1]]
            for task in gone:
                task.cancel()
            await asyncio.wait(gone)
            await first.release()
            async with asyncio.timeout(PATIENCE):
                tokens = [await task for task in tasks if task not in gone]
            assert tokens == sorted(tokens)

    asyncio.run(attacked())


@pytest.mark.parametrize("victim", [0, 7])
def test_a_waiter_of_a_crowd_learns_that_it_was_evicted(url: str, victim: int) -> None:
    """The first one hears of it; the others watch nothing, and the next renewal tells them."""

    async def attacked() -> None:
        async with crowded(url) as (ours, first, tasks):
            evicted = (await ours.inspect("x")).waiters[victim]
            async with aio.connect(url) as operator:
                assert await operator.evict("x", id=evicted.id, reason="drill")
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(Evicted, match="drill"):
                    await tasks[victim]
            await first.release()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(task for task in tasks if task is not tasks[victim]))

    asyncio.run(attacked())


def test_a_holder_of_a_crowd_that_is_evicted_keeps_nobody_waiting(url: str) -> None:
    """The next one watches it, though both are the same client's."""

    async def attacked() -> None:
        async with aio.connect(url, ttl=TTL) as ours, aio.connect(url) as operator:
            held = await ours.lock("x").acquire()
            assert held
            tasks = [asyncio.create_task(ours.lock("x").acquire()) for _ in range(3)]
            await standing(operator, 3)
            began = time.monotonic()
            await operator.evict("x", id=held.id, reason="drill")
            async with asyncio.timeout(PATIENCE):
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert time.monotonic() - began < TTL / 4, "it waited for a renewal"
            assert len(done) == 1
            for task in tasks:
                task.cancel()

    asyncio.run(attacked())


def test_a_crowd_ends_with_its_client(url: str) -> None:
    async def attacked() -> None:
        async with crowded(url) as (ours, _, tasks):
            async with asyncio.timeout(PATIENCE):
                await ours.close()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(error) for error in ended] == [ClientClosed] * len(tasks)

    asyncio.run(attacked())


def test_a_crowd_outlives_its_session(url: str) -> None:
    """All of it is woken when the session ends, and enters the queue again."""

    async def attacked() -> None:
        async with crowded(url) as (ours, first, tasks):
            store: Any = ours._core.store
            before = store._session_client.session.number
            store._session_client._client._queue.append((_expired(), None))
            store._session_client._client._connection._write_sock.asleep = True
            store._session_client._client._connection._write_sock.send(b"\0")
            async with asyncio.timeout(PATIENCE):
                while store._session_client.session is None or store._session_client.session.number == before:
                    await asyncio.sleep(0.01)
                await standing(ours, len(tasks))
                await first.release()
                tokens = await asyncio.gather(*tasks)
            assert len(set(tokens)) == len(tasks)

    asyncio.run(attacked())


def _expired() -> Any:
    from kazoo.protocol import connection

    return connection._SESSION_EXPIRED


def test_a_crowd_of_threads(url: str) -> None:
    tokens: list[int] = []
    with interlock.connect(url, ttl=TTL) as holding, interlock.connect(url, ttl=TTL) as ours:
        first = holding.lock("x").acquire()
        assert first

        def stand() -> None:
            with ours.lock("x") as lease:
                tokens.append(lease.token)

        threads = [threading.Thread(target=stand) for _ in range(12)]
        for thread in threads:
            thread.start()
        until(lambda: len(holding.inspect("x").waiters) == len(threads))
        first.release()
        for thread in threads:
            thread.join(PATIENCE)
    assert tokens == sorted(tokens)
    assert len(tokens) == len(threads)


# ---- others among them ------------------------------------------------------------------


def test_a_lock_of_kazoo_in_the_midst_of_a_crowd_has_its_turn(url: str) -> None:
    hosts = url.partition("://")[2].partition("?")[0]
    stranger = KazooClient(hosts=hosts)
    entered: list[str] = []

    async def crowd() -> None:
        async with aio.connect(url, ttl=TTL) as ours:
            first = await ours.lock("x").acquire()
            assert first
            await asyncio.to_thread(stranger.start)

            async def stand(name: str) -> None:
                async with ours.lock("x"):
                    entered.append(name)
                    await asyncio.sleep(0.01)
                    assert entered[-1] == name, "two were inside"

            def strange() -> None:
                with stranger.Lock("/interlock/x", "stranger"):
                    entered.append("kazoo")
                    time.sleep(0.3)
                    assert entered[-1] == "kazoo", "two were inside"

            tasks: list[asyncio.Task[None]] = []
            for n in range(4):
                tasks.append(asyncio.create_task(stand(f"{n}")))
                await standing(ours, n + 1)
            theirs = asyncio.create_task(asyncio.to_thread(strange))
            await standing(ours, 5)
            for n in range(4, 8):
                tasks.append(asyncio.create_task(stand(f"{n}")))
                await standing(ours, n + 2)
            await first.release()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*tasks, theirs)

    try:
        asyncio.run(crowd())
    finally:
        stranger.stop()
        stranger.close()
    assert entered == ["0", "1", "2", "3", "kazoo", "4", "5", "6", "7"]


@pytest.mark.parametrize("waiters", [1, 5])
def test_min_hold_keeps_out_those_who_wait_already(url: str, waiters: int) -> None:
    """The node that lingers comes ahead of them: the end of the claim is not their turn."""

    async def crowd() -> None:
        async with aio.connect(url, ttl=TTL) as holding, aio.connect(url, ttl=TTL) as ours:
            began = time.monotonic()
            held = await holding.lock("x", min_hold=1.5).acquire()
            assert held
            entered: list[float] = []

            async def stand() -> None:
                async with ours.lock("x"):
                    entered.append(time.monotonic())

            tasks = [asyncio.create_task(stand()) for _ in range(waiters)]
            await standing(holding, waiters)
            await asyncio.sleep(0.2)  # they have begun to listen, or not
            await held.release()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*tasks)
            assert min(entered) - began >= 1.4

    asyncio.run(crowd())


def test_a_claim_lingers_between_the_list_and_the_wait(url: str) -> None:
    """Nothing was watched then: the folder tells that the list is old."""
    theirs, ours = opened(url), opened(url)
    holder, waiter = claim(), claim()
    assert isinstance(drive(theirs.claim(holder)), Granted)
    busy = drive(ours.claim(waiter))
    assert isinstance(busy, Busy)
    assert drive(theirs.release("x", holder.id, linger=60.0))
    assert drive(ours.wait(waiter, busy, 0.5)) is None
    again = drive(ours.claim(waiter))
    assert isinstance(again, Busy)
    assert drive(ours.wait(waiter, again, 0.5)) is None
    for store in (ours, theirs):
        drive(store.close())


def test_another_capacity_is_noticed_behind_a_crowd(url: str) -> None:
    ours = opened(url)
    for _ in range(4):
        drive(ours.claim(claim(capacity=2)))
    with pytest.raises(SettingsMismatch):
        drive(ours.claim(claim()))
    drive(ours.close())


# ---- how they know ----------------------------------------------------------------------


def test_a_claim_behind_another_waiter_neither_lists_nor_watches(url: str) -> None:
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, ZooKeeperStore)
        for _ in range(SHORT_QUEUE_CLAIMS + 1):
            drive(store.claim(claim()), nested=True)
        sent = counted(client)
        last = claim()
        busy = drive(store.claim(last), nested=True)
        assert isinstance(busy, Busy)
        assert drive(store.wait(last, busy, 0.05), nested=True) is None
        assert sent == {"create": 1}


def test_those_between_us_and_the_one_who_left_still_count(url: str) -> None:
    """The one just ahead has left, out of its turn."""
    theirs, ours = opened(url), opened(url)
    holder, neighbour, waiter = claim(), claim(), claim()
    drive(theirs.claim(holder))
    drive(theirs.claim(neighbour))
    busy = drive(ours.claim(waiter))
    drive(theirs.release("x", neighbour.id))
    assert drive(ours.wait(waiter, busy, 0.3)) is None
    drive(theirs.release("x", holder.id))
    assert isinstance(drive(ours.wait(waiter, busy, PATIENCE)), Granted)
    for store in (ours, theirs):
        drive(store.close())


def test_a_waiter_that_was_removed_and_does_not_ask_holds_up_nobody_for_ever(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again behind it finds out."""
    monkeypatch.setattr("interlock.backends.zookeeper.own_claims.SHORT_QUEUE_CLAIMS", 1)
    theirs, ours = opened(url), opened(url)
    holder, first, second = claim(), claim(), claim()
    drive(theirs.claim(holder))
    drive(ours.claim(first))
    busy = drive(ours.claim(second))
    drive(theirs.evict("x", first.id, "drill"))
    drive(theirs.release("x", holder.id))
    assert drive(ours.wait(second, busy, 0.2)) is None
    assert isinstance(drive(ours.claim(second)), Granted)
    for store in (ours, theirs):
        drive(store.close())


def test_an_evicted_waiter_is_not_let_in_when_the_one_before_it_leaves(url: str) -> None:
    """It watched nothing while it slept, and the list that it has is old."""
    theirs, ours = opened(url), opened(url)
    holder, first, second = claim(), claim(), claim()
    drive(theirs.claim(holder))
    drive(ours.claim(first))
    busy = drive(ours.claim(second))
    ours._ledger.crowd(ours._paths.folder("x")).saw(_view_of(ours))
    drive(theirs.evict("x", second.id, "drill"))
    drive(theirs.release("x", holder.id))
    drive(ours.release("x", first.id))
    assert drive(ours.wait(second, busy, 0.5)) is None
    for store in (ours, theirs):
        drive(store.close())


def _view_of(store: Any) -> QueueView:
    deadline = store._requester.strictly_within(5.0)
    _, queue_read = drive(store._queue_reads.after(store._requester, store._paths.folder("x"), (), deadline))
    view: QueueView = queue_read.view()
    return view


def test_a_list_that_was_sent_before_does_not_count(url: str) -> None:
    """Whoever comes while a list is under way needs the next one; all who come meanwhile share it."""
    with interlock.connect(url, ttl=TTL) as client:
        client.lock("x").acquire()
        store: Any = client._core.store
        folder, sent = store._paths.folder("x"), counted(client)
        held: list[tuple[Any, Any]] = []
        session_client = store._session_client
        call = session_client._call

        def holding_lists(request: Any, answer: Any) -> None:
            if NAMES.get(request.type) == "list" and not held:
                held.append((request, answer))
            else:
                call(request, answer)

        session_client._call = holding_lists
        signals = [threading.Event() for _ in range(4)]
        queue_reads = [store._queue_reads._join(folder, signal) for signal in signals]
        assert queue_reads[0] is not queue_reads[1]
        assert queue_reads[1] is queue_reads[2] is queue_reads[3]
        assert sent["list"] == 0
        call(*held[0])
        for signal in signals:
            assert signal.wait(PATIENCE)
        assert sent["list"] == 2
        assert queue_reads[1].view().number > queue_reads[0].view().number
        assert not store._queue_reads._under_way


def test_a_list_that_was_never_sent_holds_up_nobody_for_long(url: str) -> None:
    """Its caller was interrupted."""
    ours = opened(url)
    drive(ours.claim(claim()))
    folder = ours._paths.folder("x")
    ours._queue_reads._under_way[folder] = QueueRead(0, ours._session_client.now() - OVERDUE_S)
    assert isinstance(drive(ours.claim(claim())), Busy)
    drive(ours.close())


@pytest.mark.parametrize("seed", range(30))
def test_a_view_says_of_each_claim_what_the_rule_says(seed: int) -> None:
    rng = random.Random(seed)
    capacity = rng.choice([1, 2, 5, EVERYTHING])
    permits = [rng.choice([1, 1, rng.randint(1, min(capacity, 9)), capacity]) for _ in range(40)]
    queue = [
        ClaimNode(number, f"n{number}", f"{number}", wanted, rng.choice([capacity, capacity, 0]))
        for number, wanted in enumerate(permits)
    ]
    taken = [place.permits_of(capacity) for place in queue]
    view = QueueView(queue)
    for place, wanted in enumerate(taken):
        assert view.find(f"n{place}") == place
        assert view.permits_ahead(place, capacity) == sum(taken[:place])
        if sum(taken[: place + 1]) > capacity:
            assert view.to_watch(place, wanted, capacity) == to_watch(taken, place, capacity)
    assert view.find("another") is None


# ---- how many are under way -------------------------------------------------------------


def test_a_flood_of_claims_lets_others_go_before_it(url: str) -> None:
    """However many come at once, a renewal finds few requests ahead of it."""

    async def flood() -> None:
        async with aio.connect(url, ttl=TTL) as ours:
            assert await ours.lock("x").acquire()
            store: Any = ours._core.store
            session_client, most, sent = store._session_client, 0, list[Any]()
            call = session_client._call

            def counting(request: Any, answer: Any) -> None:
                nonlocal most
                if NAMES.get(request.type) == "create":
                    sent.append(answer)
                    most = max(most, sum(not one.done for one in sent))
                call(request, answer)

            session_client._call = counting
            tasks = [asyncio.create_task(ours.lock("x").acquire()) for _ in range(4 * MAX_CLAIMS_SENT)]
            await standing(ours, 4 * MAX_CLAIMS_SENT)
            assert 1 < most <= MAX_CLAIMS_SENT + 2, most  # and the nodes of the session
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not store._send_slots._given
            assert not store._send_slots._waiting

    asyncio.run(flood())


def test_a_claim_that_has_no_turn_in_its_time_has_had_no_effect(url: str) -> None:
    ours = opened(url)
    drive(ours.claim(claim()))
    folder, runtime = ours._paths.folder("x"), ours._runtime
    send_slots = [drive(ours._send_slots.take(runtime, folder, 0.0)) for _ in range(MAX_CLAIMS_SENT)]
    late = claim()
    with pytest.raises(HeldUp):
        drive(ours.claim(late, 0.2))
    assert not ours._ledger.tried(late.id)
    ours._send_slots.give_back(folder, send_slots[0])
    assert isinstance(drive(ours.claim(late)), Busy)
    for slot in send_slots[1:]:
        slot.since -= SLOT_LOST_S  # as if those who had them were interrupted
    for _ in range(2):  # the first has the one that was given back
        assert drive(ours._send_slots.take(runtime, folder, 0.0)) is not None
    assert len(ours._send_slots._given[folder]) == 2
    drive(ours.close())


def test_a_turn_goes_to_the_next_in_line_whoever_gives_up() -> None:
    async def line() -> None:
        runtime, send_slots = Tasks(), SendSlots()
        given = [await send_slots.take(runtime, "x", 0.0) for _ in range(MAX_CLAIMS_SENT)]
        assert all(given)
        waiting = [asyncio.create_task(send_slots.take(runtime, "x", PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert await send_slots.take(runtime, "x", 0.0) is None
        assert given[0]
        send_slots.give_back("x", given[0])
        waiting[1].cancel()  # it has its turn already, and passes it on
        async with asyncio.timeout(PATIENCE):
            last = await waiting[2]
        for slot in (*given[1:], last):
            assert slot
            send_slots.give_back("x", slot)
        assert not send_slots._given
        assert not send_slots._waiting

    asyncio.run(line())
