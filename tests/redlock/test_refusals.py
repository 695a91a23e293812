"""What a claim that is not granted is told: that others hold it, or that too few nodes can say. The first waits, the second fails."""

from __future__ import annotations

from uuid import uuid4

import pytest

from interlock.backends.redis.errors import COMMANDS
from interlock.backends.redlock.store import RedlockStore
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Busy, Claim, Granted, NoAnswer, Renewal
from interlock.testing.servers.redlock import Servers, quorum, say, steady
from tests.redlock.colours import COLOURS, run, started

LONG = 300.0


@COLOURS
@pytest.mark.parametrize(("nodes", "without"), [(3, 1), (5, 1), (5, 2)])
def test_who_waits_for_a_holder_waits_though_a_minority_has_no_vote(
    colour: str, nodes: int, without: int
) -> None:
    with quorum(nodes) as servers:

        async def main(store: RedlockStore) -> None:
            assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Granted)
            for node in range(without):
                say(servers[node], "FLUSHALL")
            for _ in range(30):  # in whatever order the nodes answer
                assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Busy)

        run(colour, servers.url(), main)


@COLOURS
def test_a_claim_fails_if_too_few_have_a_vote_to_tell_who_holds(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            assert isinstance(await store.claim(Claim("x", uuid4().hex, LONG)), Granted)
            for node in (0, 1):
                say(servers[node], "FLUSHALL")
            with pytest.raises(StoreUnavailable, match="lost their memory"):
                await store.claim(Claim("x", uuid4().hex, LONG))

        run(colour, servers.url(), main)


@COLOURS
def test_a_clock_beyond_what_the_scripts_can_count_costs_no_token(colour: str) -> None:
    """They count in doubles: above 2**53 two numbers may be one."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            store._quorum.wall = lambda: 10**17  # the year 5138
            tokens = []
            for _ in range(5):
                claim = Claim("x", uuid4().hex, LONG)
                granted = await store.claim(claim)
                assert isinstance(granted, Granted)
                tokens.append(granted.token)
                await store.release("x", claim.id)
            assert tokens == sorted(set(tokens))
            assert tokens[-1] < 2**53

        run(colour, servers.url(), main)


def limited(servers: Servers, url: str, *without: str) -> str:
    """The URL of a user who may do all that the page asks for, except for this."""
    rights = [
        f"+{command}" for command in [*COMMANDS.split(), "info", "script|load"] if command not in without
    ]
    for server in servers.all:
        say(server, "ACL", "SETUSER", "web", "reset", "on", ">secret", "~*", "&*", "-@all", *rights)
    return url.replace("redlock://", "redlock://web:secret@")


@COLOURS
@pytest.mark.parametrize("right", ["pttl", "pexpire", "zscore", "zmscore", "zadd", "del"])
def test_a_right_that_is_missing_is_named(colour: str, right: str) -> None:
    servers = steady(3)

    async def main(store: RedlockStore) -> None:
        claim = Claim("x", "a", LONG)
        await store.claim(claim)
        for _ in range(2):
            await store.claim(Claim("x", "b", LONG))
            await store.inspect("x")
            for answer in await store.renew([Renewal("x", "a", LONG)]):
                if isinstance(answer, NoAnswer):
                    raise StoreUnfit(answer.why)
        await store.release("x", "a")

    async def voting(store: RedlockStore) -> None:
        await started(store)

    url = servers.url(f"{uuid4().hex}:")
    run(colour, url, voting)
    with pytest.raises(
        (StoreUnfit, StoreUnavailable), match=rf"does not let this user run .*{right.upper()}"
    ):
        run(colour, limited(servers, url, right), main)


@COLOURS
def test_what_an_earlier_version_left_is_named(colour: str) -> None:
    servers, prefix = steady(3), f"{uuid4().hex}:"
    for server in servers.all:
        say(server, "HSET", f"{prefix}\x1fquorum", "run", "of an earlier version")

    async def main(store: RedlockStore) -> None:
        with pytest.raises(
            StoreUnfit, match=r"under the key \\x1fquorum, behind the prefix.* delete that key"
        ):
            await store.claim(Claim("x", "a", LONG))

    run(colour, servers.url(prefix), main)


@COLOURS
def test_a_user_who_may_no_longer_run_scripts_is_granted_nothing(colour: str) -> None:
    """It could neither renew the lock nor release it."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            for _ in range(3):
                await started(store)
            limited(servers, "", "evalsha")
            with pytest.raises(StoreUnfit, match="'evalsha'"):
                await store.claim(Claim("started", "a", LONG))
            assert [say(server, "GET", "started") for server in servers.all] == [None] * 3

        run(colour, limited(servers, servers.url()), main)
