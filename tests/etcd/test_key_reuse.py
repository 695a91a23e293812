"""A client uses the key of a claim again for its next one. Nothing that comes late for the earlier claim may touch the later one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.etcd.algorithm import renewals, waits
from interlock.backends.etcd.algorithm.releases import withdraw
from interlock.backends.etcd.algorithm.sessions import Place, Session
from interlock.backends.etcd.algorithm.side import Side
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.messages import REVOKE, Method, RangeAnswer
from interlock.backends.etcd.wire.protobuf import message
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.etcd.wire.watching import Watched, WatchGroup, WatchStream
from interlock.backends.kit import listing
from interlock.backends.kit.deadline import Deadline
from interlock.blocking import Client, Lease
from interlock.errors import InterlockError, LeaseLost, StoreUnavailable, Unreached
from interlock.model import Busy, Claim, Gone, Granted, Renewal, Renewed
from interlock.store import WAITERS
from interlock.testing.servers.etcd import EtcdCluster
from tests.environment import environment
from tests.etcd.wire import Wire, used
from tests.patience import PATIENCE, until


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with interlock.connect(url, ttl=60) as made:
        yield made


@pytest.fixture
def wire(client: Client) -> Wire:
    return Wire(client)


def taken(client: Client, resource: str = "x", **options: Any) -> Lease:
    lease = client.lock(resource, timeout=PATIENCE, **options).acquire()
    assert lease
    return lease


# ---- one key for one claim after another ------------------------------------------------


def test_a_name_that_is_locked_again_and_again_has_one_key(client: Client, wire: Wire) -> None:
    tokens: list[int] = []
    keys: set[bytes] = set()
    for _ in range(10):
        with client.lock("x") as lease:
            (entry,) = wire.standing("x")
            keys.add(entry.key)
            (standing,) = client.inspect("x").holders
            assert (standing.id, standing.token) == (lease.id, lease.token)
            assert entry.created == lease.token
            tokens.append(lease.token)
    assert len(keys) == 1
    assert tokens == sorted(set(tokens))


def test_claims_at_the_same_time_have_different_keys_and_use_them_again(client: Client, wire: Wire) -> None:
    rounds: list[set[bytes]] = []
    for _ in range(3):
        with ExitStack() as held:
            for _ in range(5):
                held.enter_context(client.semaphore("s", capacity=5))
            rounds.append({entry.key for entry in wire.standing("s")})
    assert [len(keys) for keys in rounds] == [5, 5, 5]
    assert rounds[0] == rounds[1] == rounds[2]


def test_threads_in_a_crowd_never_share_a_key(client: Client, wire: Wire) -> None:
    """All of them wait in the queue of one lock, each with a key; there are never more keys than threads."""
    keys: set[bytes] = set()
    tokens: list[int] = []

    def work() -> None:
        for _ in range(10):
            with client.lock("x", timeout=PATIENCE) as lease:
                standing = wire.standing("x")
                assert [entry.claim_id for entry in standing].count(lease.id) == 1
                assert standing[0].claim_id == lease.id
                assert len({entry.key for entry in standing}) == len(standing)
                keys.update(entry.key for entry in standing)
                tokens.append(lease.token)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(tokens) == 60
    assert tokens == sorted(tokens)
    assert len(keys) <= 6


def test_a_refused_try_leaves_the_key_to_the_next_claim(client: Client, wire: Wire, url: str) -> None:
    before = used(wire, client)
    with interlock.connect(url) as other:
        lease = taken(other)
        assert client.lock("x").acquire(blocking=False) is None
        lease.release()
    assert used(wire, client) == before


def test_nothing_is_remembered_of_names_without_claims(client: Client, wire: Wire) -> None:
    for n in range(50):
        with client.lock(f"once{n}"):
            pass
    assert wire.side.sessions._names._in_use == {}
    assert wire.side.sessions._by_id == {}


def test_a_forked_child_does_not_use_the_keys_of_its_parent(url: str) -> None:
    program = f"""
import os, interlock
from tests.etcd.wire import Wire, used
client = interlock.connect({url!r}, ttl=60)
wire = Wire(client)
before = used(wire, client)
pid = os.fork()
if pid == 0:
    same = used(wire, client) == before
    client.close()
    os._exit(3 if same else 0)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert used(wire, client) == before
client.close()
"""
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


# ---- what comes late --------------------------------------------------------------------


def test_a_release_that_arrives_twice_spares_the_next_claim_at_its_key(client: Client, wire: Wire) -> None:
    first = taken(client)
    key = wire.key("x")
    first.release()
    release = wire.sent[-1]
    with client.lock("x") as second:
        assert wire.key("x") == key
        wire.send(release)
        (entry,) = wire.standing("x")
        assert entry.claim_id == second.id
        second.renew()


def test_a_claim_that_arrives_after_its_release_is_not_taken_for_the_next_one(
    client: Client, wire: Wire
) -> None:
    lease = taken(client)
    claim = wire.sent[-1]
    lease.release()
    wire.send(claim)
    (ghost,) = wire.standing("x")
    assert ghost.claim_id == lease.id
    second = client.lock("x").acquire(blocking=False)  # it waits for no renewal, which would remove it too
    assert second
    with second:
        (entry,) = wire.standing("x")
        assert entry.claim_id == second.id
        assert entry.created == second.token > ghost.created
        assert entry.key != ghost.key
    assert wire.standing("x") == []


def test_a_claim_that_arrives_while_the_next_one_holds_its_key_does_nothing(
    client: Client, wire: Wire
) -> None:
    first = taken(client)
    claim = wire.sent[-1]
    first.release()
    with client.lock("x") as second:
        wire.send(claim)
        (entry,) = wire.standing("x")
        assert (entry.claim_id, entry.created) == (second.id, second.token)


def test_a_claim_that_arrives_after_its_release_is_removed_by_the_next_renewal(
    client: Client, wire: Wire
) -> None:
    other = taken(client, "other")
    lease = taken(client)
    claim = wire.sent[-1]
    lease.release()
    wire.send(claim)
    assert len(wire.standing("x")) == 1
    other.renew()
    assert wire.standing("x") == []
    other.check()


def test_the_key_of_a_claim_without_an_answer_is_not_used_again(client: Client, wire: Wire) -> None:
    used(wire, client)  # so that there is a session
    wire.hold_back()
    with client.lock("x"):
        key = wire.key("x")
    with client.lock("x") as second:
        assert wire.key("x") != key
        wire.send(wire.held_back[0])  # a tombstone keeps it out
        (entry,) = wire.standing("x")
        assert entry.claim_id == second.id


def test_a_release_without_an_answer_is_repeated_and_its_key_not_used_again(
    client: Client, wire: Wire
) -> None:
    lease = taken(client)
    key = wire.key("x")
    wire.hold_back()
    lease.release()
    until(lambda: not wire.standing("x"))
    until(lambda: wire.side.sessions.own(lease.id) is None)
    with client.lock("x", timeout=PATIENCE) as second:
        assert wire.key("x") != key
        wire.send(wire.held_back[0])
        (entry,) = wire.standing("x")
        assert entry.claim_id == second.id


def test_a_claim_that_entered_anew_without_an_answer_is_released(
    client: Client, wire: Wire, url: str
) -> None:
    """The revision that is known of it is that of its first entry; a release that compared it would leave the second one."""
    claim = Claim("x", uuid4().hex, ttl=60)
    with interlock.connect(url) as other:
        held = taken(other)
        assert isinstance(drive(wire.store.claim(claim), nested=True), Busy)
        (mine,) = (entry for entry in wire.standing("x") if entry.claim_id == claim.id)
        wire.send(messages.txn([], [messages.delete_op(mine.key)]))
        wire.lose_answer()
        with pytest.raises(StoreUnavailable):
            drive(wire.store.claim(claim), nested=True)
        assert len(wire.standing("x")) == 2
        assert drive(wire.store.release("x", claim.id), nested=True)
        assert len(wire.standing("x")) == 1
        held.release()


def test_a_claim_that_may_have_entered_is_never_reported_as_unsent(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first try may have been applied, and for the second one nobody could be reached: the caller must take it back."""
    used(wire, client)

    async def call(method: Method, body: bytes, deadline: Deadline, **options: Any) -> bytes:
        options["unsure"]()
        raise Unreached("nobody, says the test")

    claim = Claim("x", uuid4().hex, ttl=60)
    with monkeypatch.context() as patch:
        patch.setattr(wire.side.transport, "call", call)
        with pytest.raises(StoreUnavailable) as failure:
            drive(wire.store.claim(claim), nested=True)
    assert not isinstance(failure.value, Unreached)


def test_a_claim_that_was_never_sent_leaves_its_key(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = used(wire, client)

    async def call(*_: Any, **__: Any) -> bytes:
        raise Unreached("nobody, says the test")

    with monkeypatch.context() as patch:
        patch.setattr(wire.side.transport, "call", call)
        with pytest.raises(Unreached):
            drive(wire.store.claim(Claim("x", uuid4().hex, ttl=60)), nested=True)
    assert wire.side.sessions._by_id == {}
    assert used(wire, client) == key


# ---- renewals ---------------------------------------------------------------------------


def test_a_renewal_is_answered_though_what_nobody_owns_cannot_be_removed(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, lease = taken(client, "kept"), taken(client)
    claim = wire.sent[-1]
    lease.release()
    wire.send(claim)

    async def withdraw(*_: object) -> None:
        raise StoreUnavailable("no answer, says the test")

    with monkeypatch.context() as patch:
        patch.setattr(renewals, "withdraw", withdraw)
        assert isinstance(_renewed(wire, kept.id, "kept"), Renewed)
    assert len(wire.standing("x")) == 1
    kept.renew()
    assert wire.standing("x") == []


def test_what_a_renewal_removes_is_looked_at_first(client: Client, wire: Wire) -> None:
    """The key was listed while nobody used it; meanwhile a claim has entered there."""
    with client.lock("x") as lease:
        drive(withdraw(wire.side, wire.session(lease), wire.key("x"), wire.time()), nested=True)
        assert len(wire.standing("x")) == 1
        lease.renew()


def test_what_a_renewal_removes_is_compared_in_the_same_step(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remnant that was read is gone when it is to be removed, and the next claim stands at its key."""
    lease = taken(client)
    session, claim = wire.session(lease), wire.sent[-1]
    lease.release()
    wire.send(claim)
    key = wire.key("x")
    read = Side.range
    seconds: list[Lease] = []

    async def overtaken(side: Side, request: bytes, deadline: Deadline) -> RangeAnswer:
        found = await read(side, request, deadline)
        if not seconds:
            wire.send(messages.txn([], [messages.delete_op(key)]))
            seconds.append(taken(client))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Side, "range", overtaken)
        drive(withdraw(wire.side, session, key, wire.time()), nested=True)
    (entry,) = wire.standing("x")
    assert (entry.key, entry.claim_id) == (key, seconds[0].id)
    seconds[0].release()


def test_a_renewal_of_one_session_spares_a_key_that_is_in_another_now(client: Client, wire: Wire) -> None:
    kept = taken(client, "kept", ttl=30)
    lease = taken(client, ttl=30)
    session, key = wire.session(lease), wire.key("x")
    lease.release()
    with client.lock("x", ttl=90) as second:
        (entry,) = wire.standing("x")
        assert entry.key == key
        assert entry.lease == wire.session(second).lease != session.lease
        drive(withdraw(wire.side, session, key, wire.time()), nested=True)
        drive(wire.side.transport.ask(REVOKE, messages.of_lease(session.lease), PATIENCE), nested=True)
        assert wire.key("x") == key  # it is not under the lease of the claim before
        second.renew()
    with pytest.raises(LeaseLost):
        kept.renew()


def test_a_list_of_keys_says_nothing_of_a_claim_that_came_later(
    client: Client, wire: Wire, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list shows the key, but of the claim before. The one that has it now was evicted."""
    monkeypatch.setattr(renewals, "MIN_BULK_RENEWALS", 1)
    monkeypatch.setattr(listing, "RECENT_S", 60.0)
    lease = taken(client)
    assert isinstance(_renewed(wire, lease.id), Renewed)
    lease.release()
    second = taken(client)
    with interlock.connect(url) as operator:
        operator.evict("x", reason="drill")
    assert isinstance(_renewed(wire, second.id), Gone)


def test_a_claim_that_came_after_the_list_of_keys_is_not_lost(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "MIN_BULK_RENEWALS", 1)
    monkeypatch.setattr(listing, "RECENT_S", 60.0)
    with client.lock("first") as first:
        assert isinstance(_renewed(wire, first.id, "first"), Renewed)
        with client.lock("second") as second:
            assert isinstance(_renewed(wire, second.id, "second"), Renewed)


def test_a_note_for_an_earlier_claim_is_not_written_to_the_later_one(client: Client, wire: Wire) -> None:
    """The renewal was under way when its claim was released, and its key given to the next."""
    first = taken(client)
    own = wire.side.sessions.own(first.id)
    assert own is not None
    first.release()
    with client.lock("x") as second:
        wire.side.sessions._by_id[first.id] = own  # as the renewal knows it
        renewal = Renewal("x", first.id, 60.0, note="of the first")
        assert not drive(renewals._rewrite(wire.side, renewal, wire.time()), nested=True)
        del wire.side.sessions._by_id[first.id]
        (entry,) = wire.standing("x")
        assert entry.claim_id == second.id
        assert entry.said is not None
        assert entry.said["note"] == ""


def _renewed(wire: Wire, id: str, resource: str = "x") -> object:
    (answer,) = drive(wire.store.renew([Renewal(resource, id, 60.0)]), nested=True)
    return answer


def test_a_lost_session_gives_none_of_its_keys_to_the_next(client: Client, wire: Wire) -> None:
    """The server may still have them for a while; and a claim of the lost session still knows its own."""
    used(wire, client)
    lease = taken(client)
    key, session = wire.key("x"), wire.session(lease)
    wire.side.sessions.lose(session)
    assert wire.side.key_of("x", lease.id) == key
    assert drive(wire.store.release("x", lease.id), nested=True)
    assert wire.standing("x") == []
    assert used(wire, client) != key


# ---- a lease of its own -----------------------------------------------------------------


def test_a_claim_that_lingers_keeps_its_key_and_its_place(client: Client, wire: Wire) -> None:
    used(wire, client)
    with client.lock("x", min_hold=3.0) as lease:
        key = wire.key("x")
    (entry,) = wire.standing("x")
    assert (entry.key, entry.created) == (key, lease.token)
    assert client.lock("x").acquire(blocking=False) is None
    second = taken(client)
    (entry,) = wire.standing("x")
    assert (entry.claim_id, entry.created) == (second.id, second.token)
    assert entry.lease == wire.session(second).lease
    assert entry.key != key
    assert second.token > lease.token
    second.release()


def test_conditions_use_their_keys_again(client: Client, wire: Wire, url: str) -> None:
    """A waiter's claim is removed by another client, which notifies it so; nobody releases it."""
    keys: set[bytes] = set()
    ours = client.condition("c")

    def wait() -> None:
        with ours:
            assert ours.wait(PATIENCE)

    with interlock.connect(url, ttl=60) as other:
        theirs = other.condition("c")
        for _ in range(6):
            thread = threading.Thread(target=wait)
            thread.start()
            until(lambda: wire.standing("c" + WAITERS) and not wire.standing("c"))
            keys.add(wire.key("c" + WAITERS))
            with theirs:
                theirs.notify()
            thread.join(PATIENCE)
            assert not thread.is_alive()
    until(lambda: not wire.side.sessions._by_id)
    assert len(keys) == 1


def test_a_claim_that_another_client_removed_is_forgotten_and_its_key_used_again(
    client: Client, wire: Wire, url: str
) -> None:
    claim, kept = Claim("x", uuid4().hex, ttl=60), taken(client, "kept")
    assert isinstance(drive(wire.store.claim(claim), nested=True), Granted)
    key = wire.key("x")
    with interlock.connect(url) as other:
        assert drive(other._core.store.release("x", claim.id), nested=True)
        assert not drive(other._core.store.release("x", claim.id), nested=True)
    kept.renew()
    assert wire.side.sessions.own(claim.id) is None
    assert used(wire, client) == key


def test_a_claim_that_is_missing_in_the_list_of_keys_and_stands_is_kept(client: Client, wire: Wire) -> None:
    with client.lock("x") as lease:
        session = wire.session(lease)
        session.keys, session.listed = frozenset(), wire.side.runtime.now()
        assert renewals._missing(wire.side, session) == [lease.id]
        drive(renewals._forget_if_removed(wire.side, session, lease.id, wire.time()), nested=True)
        lease.renew()


def test_a_claim_that_is_asked_for_again_is_not_forgotten_because_it_was_removed(
    client: Client, wire: Wire
) -> None:
    """A waiter whose key was deleted asks again while a renewal finds it gone. It enters: then it must be known."""
    used(wire, client)
    session = wire.side.sessions.current(60.0)
    assert session is not None
    claim = Claim("x", uuid4().hex, ttl=60)
    own = wire.side.sessions.enter(session, "x", claim.id)
    own.stands(1, 0.0)
    session.listed = wire.side.runtime.now()
    wire.side.sessions.leave_removed(claim.id, session.listed)
    assert wire.side.sessions.own(claim.id) is own
    own.asking = False
    wire.side.sessions.leave_removed(claim.id, session.listed)
    assert wire.side.sessions.own(claim.id) is None


# ---- waiting ----------------------------------------------------------------------------


def test_a_holder_that_comes_back_with_its_old_key_stands_behind_the_waiter(
    client: Client, wire: Wire, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves and comes back between the waiter's claim and its watch, so the waiter never hears of it."""
    with interlock.connect(url, ttl=60) as other:
        first = taken(other)
        theirs = Wire(other)
        before = theirs.key("x")
        back: list[Lease] = []

        def return_() -> None:
            back.append(taken(other))

        returning = threading.Thread(target=return_)
        line = drive(wire.side.connection(PATIENCE), nested=True)
        open_watches = line.open_watches

        async def late(watched: Any, timeout: float) -> WatchGroup:
            if not returning.ident:
                first.release()
                returning.start()
                until(lambda: len(wire.standing("x")) == 2)
                assert [entry.key == before for entry in wire.standing("x")] == [False, True]
            return await open_watches(watched, timeout)

        monkeypatch.setattr(line, "open_watches", late)
        with client.lock("x", timeout=PATIENCE) as lease:
            assert not back
            assert lease.token > first.token
        returning.join(PATIENCE)
        assert back[0].token > lease.token
        back[0].release()


def deleted(number: int, key: bytes, revision: int) -> bytes:
    """What a watch tells of a deletion."""
    event = message((1, 1), (2, message((1, key), (3, revision))))
    return message((2, number), (11, event))


@pytest.mark.parametrize("told", [False, True])
def test_the_end_of_an_earlier_claim_at_the_same_key_lets_nobody_in(wire: Wire, told: bool) -> None:
    """A member that lags behind tells a new watch of a deletion that is older than the waiter.

    The claim that was created at that key since then, ahead of the waiter, still stands.
    """
    session = Session(1, 60, 60.0, wire.side.runtime.now())
    wire.side.sessions.begin(session)
    claim = Claim("x", uuid4().hex, ttl=60)
    own = wire.side.sessions.enter(session, "x", claim.id)
    kv = messages.KeyValue(message((1, own.key), (2, 20), (3, 20), (5, b"{}"), (6, 1)))
    place = Place(20, 1, (Watched(own.key), Watched(b"ahead")), 0.0, ClaimKey(kv))
    stream = WatchStream()
    group = WatchGroup(lambda: None)
    stream.open(group, place.watched)
    stream.on_message(deleted(group.numbers[1], b"ahead", 21 if told else 15))
    assert group.fired
    line = drive(wire.side.connection(PATIENCE), nested=True)
    assert isinstance(line, MemberConnection)
    granted = waits._told(wire.side, line, claim, place, group)
    assert isinstance(granted, Granted) if told else granted is None
    wire.side.sessions.leave(claim.id)
    wire.side.sessions.lose(session)


def test_a_claim_is_no_longer_awaited_when_another_stands_at_its_key(client: Client, wire: Wire) -> None:
    """A call that waits for the removal of a claim ends though the key exists."""
    first = taken(client)
    own = wire.side.sessions.own(first.id)
    assert own is not None
    first.release()
    with client.lock("x"):
        wire.side.sessions._by_id[first.id] = own  # as the call that waits knows it
        began = wire.side.runtime.now()
        drive(waits.until_removed(wire.side, Claim("x", first.id, ttl=60), PATIENCE), nested=True)
        assert wire.side.runtime.now() - began < PATIENCE / 2
        del wire.side.sessions._by_id[first.id]


def test_a_claim_in_the_midst_of_a_long_queue_finds_its_place_again(url: str, cluster: EtcdCluster) -> None:
    """The answer to its claim was lost, and so many have come since that a look shows neither front nor end around it."""
    with ExitStack() as clients:
        made = [clients.enter_context(interlock.connect(url, ttl=60)) for _ in range(2)]
        wire, others = Wire(made[0]), Wire(made[1])
        claims = [Claim("x", f"{n}{uuid4().hex}", ttl=60) for n in range(12)]
        for n, claim in enumerate(claims):
            if n == 6:
                wire.lose_answer()
                with pytest.raises(StoreUnavailable):
                    drive(wire.store.claim(claim), nested=True)
            else:
                drive(others.store.claim(claim), nested=True)
        answer = drive(wire.store.claim(claims[6]), nested=True)
        assert isinstance(answer, Busy)
        assert answer.ahead >= 6  # how many have come since is not counted
        assert [entry.claim_id for entry in wire.standing("x")] == [claim.id for claim in claims]
        place = wire.side.sessions.places[claims[6].id]
        assert place.created == wire.standing("x")[6].created
        assert place.crowd


# ---- operators --------------------------------------------------------------------------


def test_an_eviction_meets_the_claim_with_that_id_and_no_later_one(
    client: Client, wire: Wire, url: str
) -> None:
    first = taken(client)
    key = wire.key("x")
    first.release()
    second = taken(client)
    assert wire.key("x") == key
    with interlock.connect(url) as operator:
        assert operator.evict("x", id=first.id, reason="too late") == []
        second.renew()
        (met,) = operator.evict("x", id=second.id, reason="drill")
        assert (met.id, met.token) == (second.id, second.token)
    with pytest.raises(LeaseLost, match="drill"):
        second.renew()
    third = taken(client)
    third.renew()
    third.release()


def test_a_stranger_at_our_key_is_left_alone(client: Client, wire: Wire, cluster: EtcdCluster) -> None:
    key = used(wire, client)
    cluster.ctl("put", key.decode(), "a value of theirs")
    assert client.lock("x").acquire(blocking=False) is None
    with pytest.raises(InterlockError):
        with client.lock("x", timeout=0.3):
            pass
    assert wire.key("x") == key
    cluster.ctl("del", key.decode())
    assert used(wire, client) != key
