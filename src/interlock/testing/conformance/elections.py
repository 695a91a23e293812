"""What an election promises: at most one leads, and everyone can read who and what it says."""

from __future__ import annotations

from functools import partial

from interlock._core.states import State
from interlock.errors import InvalidSetting, LeaseLost, NotHeld
from interlock.testing.conformance.face import PATIENCE, each, first, got, refused
from interlock.testing.conformance.suite import Suite
from interlock.testing.lag import at_most


class Elections(Suite):
    """`election`. That one leads at a time is tested with the other mutexes."""

    async def test_nobody_leads_until_somebody_is_elected(self) -> None:
        election = self.client().election(self.name)
        assert await got(election.leader()) is None
        assert not election.leading()
        lease = await got(election.campaign("10.0.0.1:80"))
        assert election.leading()
        leader = await got(self.client().election(self.name).leader())
        assert (leader.value, leader.token) == ("10.0.0.1:80", lease.token)
        assert leader.who.pid > 0
        await got(election.resign())
        assert not election.leading()
        assert await got(election.leader()) is None

    async def test_the_next_candidate_follows_one_that_resigns(self) -> None:
        self.needs(fair=True)
        one, two, see = (self.client().election(self.name) for _ in range(3))
        await got(one.campaign("one"))
        second = self.spawn(lambda: got(two.campaign("two", timeout=PATIENCE)))
        await self.standing(self.client(), holders=1, waiters=1)
        assert (await got(see.leader())).value == "one"
        await got(one.resign())
        lease = await second.result()
        leader = await got(see.leader())
        assert (leader.value, leader.token) == ("two", lease.token)
        await got(lease.release())

    async def test_a_leader_changes_what_it_proclaims_without_a_new_election(self) -> None:
        election, see = self.client().election(self.name), self.client().election(self.name)
        lease = await got(election.campaign("old"))
        await got(election.proclaim("new ünïcödé 🔒"))
        leader = await got(see.leader())
        assert (leader.value, leader.token) == ("new ünïcödé 🔒", lease.token)
        await got(election.resign())

    async def test_a_renewal_by_hand_leaves_what_was_proclaimed(self) -> None:
        election, see = self.client().election(self.name), self.client().election(self.name)
        lease = await got(election.campaign())
        await got(lease.renew())
        assert (await got(see.leader())).value == ""
        await got(election.proclaim("10.0.0.1:80"))
        await got(lease.renew())
        leader = await got(see.leader())
        assert (leader.value, leader.token) == ("10.0.0.1:80", lease.token)
        await got(election.resign())

    async def test_no_value_makes_a_leader_look_like_another_holder(self) -> None:
        """A value like a holder's signature made operators and rivals see a token of its choice."""
        client, see = self.client(), self.client()
        election = client.election(self.name)
        for value in ("\x1f", '\x1f9000000000000000\x1f["other", 1, "", ""]', "\x1fa\x1fb"):
            await refused(InvalidSetting, partial(election.campaign, value))
        lease = await got(election.campaign("me"))
        for value in ("\x1f", '\x1f9000000000000000\x1f["other", 1, "", ""]'):
            await refused(InvalidSetting, partial(election.proclaim, value))
        (holder,) = (await got(see.inspect(self.name))).holders
        assert (holder.token, holder.note) == (lease.token, "me")
        assert not await got(see.election(self.name).campaign(blocking=False))
        await got(election.resign())

    async def test_who_does_not_lead_can_neither_proclaim_nor_resign(self) -> None:
        election = self.client().election(self.name)
        await refused(NotHeld, lambda: election.proclaim("me"))
        await refused(NotHeld, election.resign)
        other = self.client().election(self.name)
        await got(other.campaign())
        await refused(NotHeld, lambda: election.proclaim("me"))
        await got(other.resign())

    async def test_a_leader_that_was_evicted_cannot_proclaim(self) -> None:
        client = self.client()
        election = client.election(self.name)
        lease = await got(election.campaign("me"))
        await got(client.evict(self.name, reason="a drill"))
        assert (await refused(LeaseLost, lambda: election.proclaim("still me"))).reason == "a drill"
        assert lease.state is State.LOST
        assert not election.leading()

    async def test_an_observer_sees_every_leader_and_every_value(self) -> None:
        election, see = self.client().election(self.name), self.client().election(self.name)
        seen = list[str | None]()

        async def observe() -> None:
            async for leader in each(see.observe(timeout=PATIENCE)):
                seen.append(None if leader is None else leader.value)
                if seen[-1] == "last":
                    return

        observer = self.spawn(observe)
        await self.until(lambda: seen == [None])
        await got(election.campaign("first"))
        await self.until(lambda: seen[-1] == "first")
        await got(election.proclaim("second"))
        await self.until(lambda: seen[-1] == "second")
        await got(election.resign())
        await self.until(lambda: seen[-1] is None)
        await got(election.campaign("last"))
        await observer.result()
        assert seen == [None, "first", "second", None, "last"]
        await got(election.resign())

    async def test_observing_ends_after_its_quiet_seconds(self) -> None:
        election = self.client().election(self.name)
        with at_most(3.0):
            seen = [leader async for leader in each(election.observe(timeout=0.1))]
        assert seen == [None]
        assert await first(election.observe(timeout=PATIENCE), 1) == [None]

    async def test_a_candidates_value_is_a_string_of_bounded_length(self) -> None:
        election = self.client().election(self.name)
        await refused(TypeError, lambda: election.campaign(7))
        for value in ("x" * 4097, "é" * 2049, "a\x00b", "\ud800"):
            await refused(InvalidSetting, partial(election.campaign, value))
        await got(election.campaign("é" * 2048))
        assert (await got(election.leader())).value == "é" * 2048
        await got(election.resign())
