"""Claims that live with their client's session, in virtual time: directed faults, then seeds."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from interlock.aio import Lease
from interlock.errors import StoreUnavailable
from interlock.testing.checkers import Terms, judge
from interlock.testing.faults import Faults
from interlock.testing.scenarios import SESSION_SCENARIOS
from interlock.testing.sessions import Session, SessionStore
from interlock.testing.simulated_cluster import ClientProcess, SessionCluster
from interlock.testing.simulation import SessionSpec, campaign, simulate
from interlock.testing.weather import WEATHERS
from interlock.testing.world import SimulatedJob
from tests.full import FULL

TTL = 3.0
EACH = 5 if FULL else 1  # seeds for each pair of scenario and weather


class Sessions:
    """A cluster with sessions of `stretch` ttls, judged when the test is over."""

    def __init__(self, seed: int = 1, *, stretch: float = 2.0, pings: bool = False, **options: Any) -> None:
        self.cluster = SessionCluster(seed, ttl=TTL, **options)
        self.cluster.stretch, self.cluster.pings = stretch, pings
        self.world = self.cluster.world

    def start(self, process: ClientProcess, work: Coroutine[Any, Any, None]) -> SimulatedJob:
        return process.runtime.spawn("work", work)

    def play(self, seconds: float, *jobs: SimulatedJob) -> None:
        """Let time pass; with jobs, until they have ended."""
        until = self.world.time + seconds
        self.world.run(until, (lambda: not any(job.alive() for job in jobs)) if jobs else None)
        assert not any(job.alive() for job in jobs), f"still at work after {seconds} s"
        assert not self.world.failures, self.world.failures

    def free(self, name: str) -> bool:
        space = self.cluster.server.space
        return not space.live(name, space.now())

    def session(self, process: ClientProcess) -> Session:
        store = process.core.store
        assert isinstance(store, SessionStore)
        assert store.known.session is not None
        return store.known.session

    def judged(self) -> None:
        found = judge(self.cluster.history, Terms(progress=100.0))
        self.world.close()
        assert not found, [str(violation) for violation in found]


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    made = Sessions()
    yield made
    made.judged()


async def held(process: ClientProcess, leases: list[Lease], *names: str, **options: Any) -> None:
    """Acquire, and end without a release."""
    for name in names:
        lease = await process.client.lock(name, **options).acquire()
        assert lease is not None
        leases.append(lease)


# ---- directed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"renew": False}, {"max_hold": 1.0}, {}], ids=["renew", "max_hold", "owner"]
)
def test_what_our_own_clock_ends_is_released_though_the_session_lives_on(options: dict[str, Any]) -> None:
    """Nobody renews it, its time is up, or its owner has ended: pings keep the session, so only a release removes it."""
    sessions = Sessions(pings=True)
    process, other = sessions.cluster.add_process(), sessions.cluster.add_process()
    leases: list[Lease] = []

    async def take_over() -> None:
        async with other.client.lock("r"):
            pass

    sessions.play(1.0, sessions.start(process, held(process, leases, "r", **options)))
    sessions.play(3 * TTL, sessions.start(other, take_over()))
    sessions.play(4 * TTL)
    assert sessions.free("r")
    assert sessions.session(process).alive(sessions.cluster.server.now())
    sessions.judged()


def test_when_a_session_lapses_all_its_leases_are_lost_at_once(sessions: Sessions) -> None:
    process, other = sessions.cluster.add_process(), sessions.cluster.add_process()
    leases: list[Lease] = []

    async def work() -> None:
        await held(process, leases, "a", "b", "c")
        while leases[0].state.name != "LOST":
            await process.runtime.sleep(0.1)

    async def watch() -> None:
        for name in "abc":
            async with other.client.lock(name):
                pass

    job = sessions.start(process, work())
    sessions.play(0.5)
    lapsed = sessions.session(process)
    lapsed.lapses = sessions.cluster.server.now()  # as a server that lost contact with its client does
    sessions.play(TTL, job)
    assert [lease.loss().cause for lease in leases] == ["session"] * 3
    sessions.play(TTL, sessions.start(other, watch()))


def test_a_paused_client_finds_its_session_gone_and_begins_another(sessions: Sessions) -> None:
    process, other = sessions.cluster.add_process(), sessions.cluster.add_process()
    tokens: list[int] = []

    async def take(taker: ClientProcess, seconds: float) -> None:
        lease = await taker.client.lock("r").acquire()
        assert lease is not None
        tokens.append(lease.token)
        await taker.runtime.sleep(seconds)
        if lease.state.name != "LOST":
            await lease.release()

    first = sessions.start(process, take(process, 2.0))
    sessions.play(0.5)
    before = sessions.session(process)
    process.pause()
    sessions.play(4 * TTL, sessions.start(other, take(other, 0.1)))  # let in when the session has lapsed
    process.resume()
    sessions.play(TTL, first)
    sessions.play(TTL, sessions.start(process, take(process, 0.1)))
    assert sessions.session(process) is not before
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_the_renewal_of_one_lease_carries_all_claims_of_the_session(sessions: Sessions) -> None:
    process = sessions.cluster.add_process()
    leases: list[Lease] = []
    sizes: list[int] = []

    async def work() -> None:
        await held(process, leases, "long", ttl=TTL)
        await held(process, leases, "once", renew=False, ttl=1.5 * TTL)
        session = sessions.session(process)
        for _ in range(12):
            await process.runtime.sleep(TTL / 4)
            (entry,) = sessions.cluster.server.space.queues.get("once", [None])
            sizes.append(0 if entry is None else int(entry.lapses == session.lapses))
        await leases[0].release()

    sessions.play(4 * TTL, sessions.start(process, work()))
    assert sizes[:4] == [1] * 4, "the claim that nobody renews lapses with its session, and not by itself"
    assert sizes[-1] == 0, "and is released when its lease has ended"


def test_a_slow_answer_never_makes_a_lease_outlive_its_session() -> None:
    """Deadlines count from the sending of what kept the session, whichever request that was."""
    for seed in range(30):
        sessions = Sessions(seed, stretch=1.0, faults=Faults(delay=0.5, long=2.0))
        process = sessions.cluster.add_process()

        async def hold(process: ClientProcess = process, sessions: Sessions = sessions) -> None:
            lease = await process.client.lock("r").acquire()
            assert lease is not None
            while lease.remaining() > 0:
                await process.runtime.sleep(0.05)

        sessions.start(process, hold())
        sessions.play(20.0)
        sessions.judged()  # among them SessionCluster.believed


def test_a_grant_lives_no_longer_than_the_session_that_carries_it() -> None:
    sessions = Sessions(stretch=1.0)
    process = sessions.cluster.add_process()

    async def work() -> None:
        async with process.client.lock("a"):
            await process.runtime.sleep(0.2 * TTL)  # so long ago the session was kept
            async with process.client.lock("b") as second:
                assert second.remaining() < 0.9 * TTL

    sessions.play(TTL, sessions.start(process, work()))
    sessions.judged()


def test_a_release_that_is_not_answered_is_repeated_for_as_long_as_the_session_lives() -> None:
    sessions = Sessions(pings=True)
    process = sessions.cluster.add_process()
    unanswered: list[str] = []

    async def work() -> None:
        lease = await process.client.lock("r").acquire()
        assert lease is not None
        process.link.faults = Faults(lose_request=1.0, timeout=0.2)
        with pytest.raises(StoreUnavailable):
            await lease.release()
        unanswered.append("release")

    sessions.play(TTL, sessions.start(process, work()))
    sessions.play(3 * TTL)
    assert not sessions.free("r")
    process.link.heal()
    sessions.play(5.0)
    assert sessions.free("r")
    sessions.judged()


def test_a_late_copy_of_a_claim_that_was_taken_back_does_not_enter() -> None:
    sessions = Sessions(pings=True)
    process = sessions.cluster.add_process()

    async def take() -> None:
        process.link.faults = Faults(repeat=1.0, long=2.0)
        for _ in range(10):
            async with process.client.lock("r"):
                pass
        process.link.heal()

    sessions.play(5.0, sessions.start(process, take()))
    sessions.play(3.0)
    assert sessions.free("r")
    sessions.judged()


# ---- seeds ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SESSION_SCENARIOS)
def test_nothing_that_must_never_happen_does(scenario: str) -> None:
    specs = [
        SessionSpec(scenario, weather, 1000 * number + 100 * index + list(SESSION_SCENARIOS).index(scenario))
        for index, weather in enumerate(WEATHERS)
        for number in range(EACH)
    ]
    guilty = [str(verdict) for verdict in campaign(specs) if verdict.violations]
    assert not guilty, "\n" + "\n".join(guilty)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (simulate(SessionSpec("forgotten", "tempest", 7)) for _ in range(2))
    assert (first.grants, first.faults, first.virtual) == (second.grants, second.faults, second.virtual)
