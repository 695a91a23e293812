"""Claims that live with their client's session: what interlock ends by its own clock is released, or it would stand for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import interlock
from interlock._api.construction import made
from interlock._core.client import Client as CoreClient
from interlock._core.drive import drive
from interlock._core.place import QueuePlace
from interlock._runtime.threads import Threads
from interlock.backends.memory import Space
from interlock.blocking import Client, Lease
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.model import Claim, ClaimAnswer, Renewed
from interlock.testing.sessions import SessionStore
from tests.attacks.stage import eventually

PATIENCE = 20.0


class Sessions:
    """A client on the reference for session stores, and one that looks on."""

    def __init__(self) -> None:
        self.runtime = Threads()
        self.space = Space(self.runtime.now, self.runtime.mutex())
        self.store = SessionStore(self.space, self.runtime)
        self.client = self._client(self.store)
        self.other = self._client(SessionStore(self.space, self.runtime))

    def _client(self, store: SessionStore) -> Client:
        core = CoreClient(store, self.runtime, self.runtime, ttl=30.0, listener=None, lease_type=Lease)
        return made(Client, core)

    def free(self, name: str) -> bool:
        return not self.other.inspect(name).standings


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    sessions = Sessions()
    sessions.client.lock("keeps the session").acquire()
    with sessions.client, sessions.other:
        yield sessions


def test_a_lease_that_nobody_renews_is_released_when_its_ttl_is_over(sessions: Sessions) -> None:
    lease = sessions.client.lock("x", ttl=0.2, renew=False).acquire()
    assert lease
    eventually(lambda: sessions.free("x"), PATIENCE)
    assert lease.state is interlock.State.LOST


def test_a_lease_is_released_when_max_hold_is_over(sessions: Sessions) -> None:
    assert sessions.client.lock("x", max_hold=0.2).acquire()
    eventually(lambda: sessions.free("x"), PATIENCE)


def test_the_lease_of_a_dead_thread_is_released(sessions: Sessions) -> None:
    thread = threading.Thread(target=sessions.client.lock("x", ttl=0.3).acquire)
    thread.start()
    thread.join()
    eventually(lambda: sessions.free("x"), PATIENCE)


def test_the_place_of_a_waiter_that_has_ended_is_released(sessions: Sessions) -> None:
    assert sessions.other.lock("x").acquire()
    core = sessions.client._core

    def wait_and_end() -> None:
        """End in the midst of a wait, as a thread does whose greenlet or coroutine was destroyed."""
        claim = Claim("x", core.runtime.fresh_id(), 0.3, 1, 1, True, 0.3)
        drive(core.store.claim(claim))
        core.keeper.keep(QueuePlace(claim, core.runtime.now(), core.runtime.owner()))

    thread = threading.Thread(target=wait_and_end)
    thread.start()
    thread.join()
    eventually(lambda: not sessions.other.inspect("x").waiters, PATIENCE)


def test_when_the_session_ends_everything_is_lost_at_once(sessions: Sessions) -> None:
    leases = [sessions.client.lock(f"x{number}").acquire() for number in range(5)]
    sessions.store.expire()
    for lease in leases:
        assert lease
        with pytest.raises(LeaseLost) as lost:
            lease.check()
        assert lost.value.cause == "session"
    assert sessions.free("x0")
    with sessions.client.lock("x0"):  # the next claim begins a new session
        assert not sessions.free("x0")


def test_a_release_without_an_answer_is_repeated_for_as_long_as_the_session_lives(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = sessions.client.lock("x", ttl=0.2).acquire()
    assert lease
    release, tries = sessions.store.release, list[str]()

    async def silent(resource: str, id: str, linger: float = 0.0, timeout: float = 5.0) -> bool:
        if len(tries) < 3:
            tries.append(resource)
            raise StoreUnavailable("no answer")
        return await release(resource, id, linger, timeout)

    monkeypatch.setattr(sessions.store, "release", silent)
    with pytest.raises(StoreUnavailable):
        lease.release()
    eventually(lambda: sessions.free("x"), PATIENCE)  # long after its ttl
    assert len(tries) == 3


def test_min_hold_works_where_the_store_cannot_keep_a_released_claim(sessions: Sessions) -> None:
    with sessions.client.lock("x", min_hold=0.4):
        pass
    assert not sessions.free("x")
    eventually(lambda: sessions.free("x"), PATIENCE)


def test_closing_removes_every_claim_though_the_session_goes_on(sessions: Sessions) -> None:
    for number in range(3):
        sessions.client.lock(f"x{number}").acquire()
    waiting = threading.Thread(target=lambda: sessions.other.lock("x0").acquire(timeout=PATIENCE))
    waiting.start()
    eventually(lambda: sessions.other.inspect("x0").waiters, PATIENCE)
    sessions.client.close()
    waiting.join(PATIENCE)
    assert [standing.admitted for standing in sessions.other.inspect("x0").standings] == [True]
    assert sessions.free("x1")


def test_a_deadline_counts_from_the_last_renewal_of_the_session(sessions: Sessions) -> None:
    before = sessions.runtime.now()
    lease = sessions.client.lock("x", ttl=60.0).acquire()
    assert lease
    kept = sessions.store.known.kept
    assert kept <= before
    assert lease.deadline <= kept + 60.0


# ---- a session that the servers keep for less than they had answered ----------------------


def shortened(sessions: Sessions, since: float, seconds: float) -> None:
    """What a store calls as soon as it hears of it."""
    session = sessions.client._core.session
    assert session is not None
    session.shorten(since, seconds)


def test_a_session_that_is_shortened_shortens_its_leases_at_once(sessions: Sessions) -> None:
    lease = sessions.client.lock("x", ttl=60.0).acquire()
    assert lease
    since = sessions.runtime.now()
    shortened(sessions, since, 20.0)
    assert lease.deadline <= since + 20.0
    assert lease.ttl == 20.0


def test_an_answer_from_before_the_session_was_shortened_gives_no_more(sessions: Sessions) -> None:
    lease = sessions.client.lock("x", ttl=60.0, renew=False).acquire()
    assert lease
    asked = sessions.runtime.now()
    shortened(sessions, asked, 20.0)
    lease._on_reply(asked, Renewed(60.0))
    assert lease.deadline <= asked + 20.0
    later = sessions.runtime.now()
    lease._on_reply(later, Renewed(60.0))
    assert lease.deadline > later + 50.0  # what the servers answer from then on counts again


def test_a_grant_that_arrives_while_the_session_is_shortened_gives_no_more(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = sessions.store.claim

    async def overtaken(wanted: Claim, timeout: float = 5.0) -> ClaimAnswer:
        answer = await claim(wanted, timeout)
        shortened(sessions, sessions.runtime.now(), 20.0)
        return answer

    monkeypatch.setattr(sessions.store, "claim", overtaken)
    lease = sessions.client.lock("x", ttl=60.0).acquire()
    assert lease
    assert lease.deadline <= sessions.runtime.now() + 20.0
