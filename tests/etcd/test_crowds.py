"""Many waiters of one client on one lock: what they cost the servers, and that they come in, hand on and leave as a few do."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.backends.etcd.algorithm.queue_view import MAX_WHOLE_CLAIMS
from interlock.backends.etcd.algorithm.sessions import Session, Sessions
from interlock.backends.etcd.algorithm.waits import _read_ahead
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import RANGE, TXN, RangeAnswer, get
from interlock.backends.etcd.wire.protobuf import message
from interlock.backends.etcd.wire.values import claim_value
from interlock.backends.kit.crowds import Crowd
from interlock.backends.kit.listing import MIN_BULK_RENEWALS
from interlock.errors import ClientClosed, Evicted, SettingsMismatch
from interlock.model import EVERYTHING, Busy, Claim, Granted, Renewal, Renewed
from interlock.testing.servers.etcd import EtcdCluster, running
from tests.patience import PATIENCE, until

MANY = 60
TTL = 60.0


def key_count(cluster: EtcdCluster, prefix: str) -> int:
    return len(cluster.ctl("get", "--prefix", "--keys-only", prefix).split())


# ---- what they cost ---------------------------------------------------------------------


def test_a_crowd_enters_without_reading_and_watching_the_queue() -> None:
    """Each waiter is one Txn. Before, each read the queue three times, looked, and opened two watches: and that twice."""

    async def crowd(cluster: EtcdCluster) -> None:
        async with (
            aio.connect(cluster.url(), ttl=TTL) as holding,
            aio.connect(cluster.url(), ttl=TTL) as ours,
        ):
            first = await holding.lock("x").acquire()
            assert first
            before = cluster.received()
            tokens: list[int] = []

            async def stand() -> None:
                async with ours.lock("x") as lease:
                    tokens.append(lease.token)

            tasks = [asyncio.create_task(stand()) for _ in range(MANY)]
            while await asyncio.to_thread(key_count, cluster, "interlock/x/") <= MANY:
                await asyncio.sleep(0.02)
            sent = cluster.received() - before
            assert sent["Txn"] <= MANY + 3 * MAX_WHOLE_CLAIMS, sent
            assert sent["Watch"] <= MANY // 2, sent  # those who came before there was a crowd
            before = cluster.received()
            await first.release()
            await asyncio.gather(*tasks)
            sent = cluster.received() - before
            assert tokens == sorted(tokens)
            assert len(set(tokens)) == MANY
            # Each: a release, a look at those who were ahead, and perhaps a mark. The whole queue is read now and then.
            assert sent["Txn"] <= 4 * MANY, sent
            assert sent["Range"] <= MANY + 10, sent  # each asks once more after a second, if it came to that
        assert await asyncio.to_thread(key_count, cluster, "interlock/x/") == 0

    with running(1) as cluster:
        asyncio.run(crowd(cluster))


def test_a_claim_that_enters_a_long_queue_is_answered_in_few_bytes(url: str) -> None:
    """However many stand there: it is told of a few, and how many there are."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        sizes = measured(store)
        for n in range(40):
            drive(store.claim(Claim("x", f"{n:032}", ttl=TTL)), nested=True)
        assert max(sizes[20:]) <= max(sizes[:20])


def test_a_reader_is_answered_in_few_bytes_however_many_read(url: str) -> None:
    """Before, each read all who had come before it."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        sizes = measured(store)
        for n in range(40):
            answer = drive(store.claim(a_reader(n)), nested=True)
            assert isinstance(answer, Granted)
        writer = Claim("x", "w" * 32, ttl=TTL, permits=EVERYTHING, capacity=EVERYTHING)
        answer = drive(store.claim(writer), nested=True)
        assert isinstance(answer, Busy)
        assert answer.ahead == 40
        for n in range(40, 60):
            assert isinstance(drive(store.claim(a_reader(n)), nested=True), Busy)
        assert max(sizes[20:]) <= max(sizes[:20]) + 512  # the writer


@pytest.mark.parametrize("key", ["0", "zz", "~r", "~r.x", "\x7f"])
def test_a_reader_among_many_waits_for_a_stranger_whatever_its_key(
    url: str, cluster: EtcdCluster, key: str
) -> None:
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        for n in range(2 * MAX_WHOLE_CLAIMS):
            assert isinstance(drive(store.claim(a_reader(n)), nested=True), Granted)
        stranger = (store._side.keys.claim("x", key)).decode()
        cluster.ctl("put", stranger, "held by another program")
        late = a_reader(99)
        assert isinstance(drive(store.claim(late), nested=True), Busy)
        assert drive(store.wait(late, Busy(1, 1.0), 0.05), nested=True) is None
        cluster.ctl("del", stranger)
        assert isinstance(drive(store.wait(late, Busy(1, 1.0), PATIENCE), nested=True), Granted)


def test_readers_of_an_earlier_version_share_and_are_waited_for(url: str, cluster: EtcdCluster) -> None:
    """Their keys are not apart: what stands in the value counts."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        earlier = store._side.keys.claim("x", "4" * 16).decode()
        cluster.ctl("put", earlier, claim_value(a_reader(98), 0).decode())
        for n in range(2 * MAX_WHOLE_CLAIMS):
            assert isinstance(drive(store.claim(a_reader(n)), nested=True), Granted)
            drive(store.release("x", a_reader(n).id), nested=True)
        writer = Claim("x", "w" * 32, ttl=TTL, permits=EVERYTHING, capacity=EVERYTHING)
        assert isinstance(drive(store.claim(writer), nested=True), Busy)
        cluster.ctl("del", earlier)
        assert isinstance(drive(store.wait(writer, Busy(1, 1.0), PATIENCE), nested=True), Granted)


def a_reader(n: int) -> Claim:
    return Claim("x", f"{n:032}", ttl=TTL, permits=1, capacity=EVERYTHING)


def measured(store: EtcdStore) -> list[int]:
    """The sizes of the answers that the store gets from now on."""
    sizes: list[int] = []
    call = store._side.transport.call

    async def sized(*args: Any, **options: Any) -> bytes:
        answer = await call(*args, **options)
        sizes.append(len(answer))
        return answer

    store._side.transport.call = sized  # type: ignore[method-assign]
    return sizes


def test_another_capacity_is_noticed_at_the_end_of_a_long_queue(url: str) -> None:
    """The front of the queue decides which one is right; a claim that enters does not read it, unless something looks strange."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        for n in range(2 * MAX_WHOLE_CLAIMS):
            drive(store.claim(Claim("x", f"{n:032}", ttl=TTL, permits=1, capacity=3)), nested=True)
        for n in range(50, 56):
            with pytest.raises(SettingsMismatch):
                drive(store.claim(Claim("x", f"{n:032}", ttl=TTL)), nested=True)
        assert len(client.inspect("x").waiters) == 2 * MAX_WHOLE_CLAIMS - 3


# ---- how they leave ---------------------------------------------------------------------


@asynccontextmanager
async def crowded(url: str) -> AsyncIterator[tuple[aio.Client, aio.Lease, list[asyncio.Task[int]]]]:
    """A client of which a dozen tasks wait, in order, for a lock that another holds."""
    async with aio.connect(url, ttl=3.0) as holding, aio.connect(url, ttl=3.0) as ours:
        first = await holding.lock("x").acquire()
        assert first

        async def stand() -> int:
            async with ours.lock("x") as lease:
                return lease.token

        tasks: list[asyncio.Task[int]] = []
        for n in range(2 * MAX_WHOLE_CLAIMS):
            tasks.append(asyncio.create_task(stand()))
            while len((await holding.inspect("x")).waiters) <= n:
                await asyncio.sleep(0.01)
        yield ours, first, tasks
        await asyncio.gather(*tasks, return_exceptions=True)


def test_waiters_in_the_midst_of_a_crowd_may_leave(url: str) -> None:
    async def attacked() -> None:
        async with crowded(url) as (_, first, tasks):
            gone = [tasks[0], tasks[MAX_WHOLE_CLAIMS + 1], tasks[MAX_WHOLE_CLAIMS + 2], tasks[-1]]
            for task in gone:
                task.cancel()
            await asyncio.wait(gone)
            await first.release()
            async with asyncio.timeout(PATIENCE):
                tokens = [await task for task in tasks if task not in gone]
            assert tokens == sorted(tokens)

    asyncio.run(attacked())


def test_a_waiter_in_the_midst_of_a_crowd_learns_that_it_was_evicted(url: str) -> None:
    """It watches nothing: the next renewal tells."""

    async def attacked() -> None:
        async with crowded(url) as (ours, first, tasks):
            evicted = (await ours.inspect("x")).waiters[MAX_WHOLE_CLAIMS + 3]
            assert await ours.evict("x", id=evicted.id, reason="drill")
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(Evicted, match="drill"):
                    await tasks[MAX_WHOLE_CLAIMS + 3]
            await first.release()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(task for task in tasks if task is not tasks[MAX_WHOLE_CLAIMS + 3]))

    asyncio.run(attacked())


def test_a_crowd_ends_with_its_client(url: str) -> None:
    async def attacked() -> None:
        async with crowded(url) as (ours, _, tasks):
            async with asyncio.timeout(PATIENCE):
                await ours.close()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(error) for error in ended] == [ClientClosed] * len(tasks)

    asyncio.run(attacked())


def test_a_crowd_of_threads(url: str) -> None:
    tokens: list[int] = []
    with interlock.connect(url, ttl=TTL) as holding, interlock.connect(url, ttl=TTL) as ours:
        first = holding.lock("x").acquire()
        assert first

        def stand() -> None:
            with ours.lock("x") as lease:
                tokens.append(lease.token)

        threads = [threading.Thread(target=stand) for _ in range(2 * MAX_WHOLE_CLAIMS)]
        for thread in threads:
            thread.start()
        until(lambda: len(holding.inspect("x").waiters) == len(threads))
        first.release()
        for thread in threads:
            thread.join(PATIENCE)
    assert tokens == sorted(tokens)
    assert len(tokens) == len(threads)


# ---- how they know ----------------------------------------------------------------------


def test_the_first_of_a_crowd_is_woken_when_the_one_before_it_leaves() -> None:
    crowd = Crowd[int, bytes]()
    for created, id in ((5, "b"), (3, "a"), (9, "c")):
        crowd.join(id, created)
    waiting = {id: crowd.behind(id, threading.Event) for id in "abc"}
    assert waiting["a"] is None
    crowd.leave("c")
    assert waiting["c"] is not None
    assert waiting["c"].is_set()
    assert waiting["b"] is not None
    assert not waiting["b"].is_set()
    crowd.leave("a")
    assert waiting["b"].is_set()
    assert crowd.behind("b", threading.Event) is None
    crowd.join("b", 20)  # it stands elsewhere now
    crowd.join("d", 15)
    assert crowd.behind("b", threading.Event) is not None
    assert crowd.behind("d", threading.Event) is None


def test_the_front_of_a_queue_tells_who_was_ahead() -> None:
    crowd = Crowd[int, bytes]()
    crowd.front_was([(3, b"a"), (5, b"b"), (9, b"c")])
    assert crowd.ahead_of(3) == []
    assert crowd.ahead_of(9) == [(3, b"a"), (5, b"b")]
    assert crowd.ahead_of(4) is None
    assert crowd.ahead_of(10) is None
    crowd.left([3])
    assert crowd.ahead_of(9) == [(5, b"b")]
    assert crowd.ahead_of(3) is None


def test_a_list_of_keys_that_took_long_is_used_for_longer(url: str) -> None:
    """60,000 leases of a client were lost: each hundred of them asked for the list of all, which took longer than it was used."""
    with interlock.connect(url, ttl=TTL) as client:
        leases = [client.lock(f"x{n}").acquire() for n in range(MIN_BULK_RENEWALS)]
        store = client._core.store
        assert isinstance(store, EtcdStore)
        renewals = [Renewal(lease.resource, lease.id, TTL) for lease in leases if lease is not None]
        session = store._side.sessions.current(TTL)
        assert session is not None

        def is_listed(age: float, took: float) -> bool:
            """Whether a renewal asks for a list, if the last one is so old and took so long."""
            drive(store.renew(renewals), nested=True)
            session.listed, session.listing = listed, _ = session.listed - age, took
            for own in session.claims.values():
                own.entered -= age
            answers = drive(store.renew(renewals), nested=True)
            assert all(isinstance(answer, Renewed) for answer in answers)
            return session.listed != listed

        assert is_listed(1.0, 0.01)
        assert not is_listed(1.0, 1.0)
        assert is_listed(5.0, 1.0)
        assert is_listed(TTL / 4, TTL)


def test_a_claim_of_a_crowd_that_has_no_place_any_more_holds_up_nobody(url: str) -> None:
    """Its answer was lost: it may stand behind those who would wait for it."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        claims = [Claim("x", f"{n:032}", ttl=TTL) for n in range(MAX_WHOLE_CLAIMS + 3)]
        for claim in claims:
            drive(store.claim(claim), nested=True)
        crowd, sessions = claims[MAX_WHOLE_CLAIMS:], store._side.sessions
        assert sessions.behind_ours("x", crowd[0].id, threading.Event) is None
        assert sessions.behind_ours("x", crowd[1].id, threading.Event) is not None
        own = sessions.own(crowd[0].id)
        assert own is not None
        own.created = 0
        assert sessions.behind_ours("x", crowd[1].id, threading.Event) is None


class Lagging:
    """A connection to a member that has not seen the latest claims: serializable reads show the state of an earlier revision."""

    least = 0.0

    def __init__(self, line: Any, behind: bytes) -> None:
        self._line = line
        self._behind = behind  # the answer of such a member
        self.asked = 0

    async def call(self, method: bytes, body: bytes, timeout: float) -> bytes:
        if method == TXN:
            self.asked += 1
            if self.asked == 1:
                return self._behind
        answer: bytes = await self._line.call(method, body, timeout)
        return answer


def test_a_member_that_has_not_seen_those_ahead_enter_does_not_count(url: str) -> None:
    """It would show none of them, as if all had left; the look is repeated at the leader."""
    with interlock.connect(url, ttl=TTL) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        side = store._side
        claims = [Claim("x", f"{n:032}", ttl=TTL) for n in range(MAX_WHOLE_CLAIMS + 2)]
        for claim in claims:
            drive(store.claim(claim), nested=True)
        last, deadline = claims[-1], side.within(PATIENCE)
        place = side.sessions.places[last.id]
        line = drive(side.connection(PATIENCE), nested=True)
        # Our own key alone, and a revision before it was created: as if those ahead did not exist.
        kvs = drive(line.call(RANGE, get(side.key_of("x", last.id)), PATIENCE), nested=True)
        (own,) = RangeAnswer.of(kvs).kvs
        behind = _txn_answer(place.created - 1, kvs, len(claims) - 1)
        lagging = Lagging(line, behind)
        assert own.created == place.created
        found = drive(_read_ahead(side, lagging, last, place, deadline), nested=True)  # type: ignore[arg-type]
        assert found is True
        assert lagging.asked == 2


def _txn_answer(revision: int, own: bytes, others: int) -> bytes:
    """The answer of a read-only Txn: our own key, and nothing for the others."""
    answers = [message((1, own)), *(message((1, message((4, 0)))) for _ in range(others))]
    return message((1, message((3, revision))), (2, 1), *((3, answer) for answer in answers))


def test_claims_may_enter_while_a_renewal_looks_through_thousands_of_them() -> None:
    """Copying a dict makes objects, so the collector may run in the midst of it, and other threads with it: the renewal failed."""
    sessions = Sessions(Keys())
    session = Session(1, 60, 60.0, 0.0)
    sessions.begin(session)
    for n in range(5000):
        sessions.enter(session, f"{n}", f"{n}")
    threads: list[threading.Thread] = []

    def another_thread_runs(phase: str, _: object) -> None:
        if phase == "start" and not threads:
            threads.append(threading.Thread(target=sessions.enter, args=(session, "late", "late")))
            threads[0].start()
            threads[0].join(0.2)

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(another_thread_runs)
    gc.set_threshold(100)
    try:
        found = sessions.claims_of(session)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another_thread_runs)
    assert len(found) >= 5000
    threads[0].join(PATIENCE)
    assert sessions.own("late") is not None
