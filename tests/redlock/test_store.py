"""A quorum on real servers, some of which die, hang, forget or have seen more."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import pytest

import interlock
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.connections import UNCHECKED_S
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit
from interlock.model import Busy, Claim, Gone, Granted, NoAnswer, Renewal, Renewed
from interlock.testing.lag import Lag, at_most
from interlock.testing.servers.redis import running
from interlock.testing.servers.redlock import DURABLE, Servers, quorum, say, steady
from tests.patience import PATIENCE
from tests.redlock.colours import COLOURS, opened, patiently, run, started, until

LONG = 30.0


def claim(name: str = "x", ttl: float = LONG) -> Claim:
    return Claim(name, uuid4().hex, ttl)


async def pair(store: RedlockStore, name: str = "x") -> tuple[float, int]:
    """Take and give back: how long it took, the machine's own lag not counted, and the token."""
    wanted = claim(name)
    with Lag() as lag:
        began = time.monotonic()
        granted = await store.claim(wanted)
        assert isinstance(granted, Granted), granted
        assert await store.release(name, wanted.id)
        took = time.monotonic() - began
    return took - lag.seconds, granted.token


def states(found: list[object]) -> list[str]:
    return [str(getattr(one, "state", "")) for one in found]


# ---- grants ------------------------------------------------------------------------


@COLOURS
def test_new_nodes_start_at_once(colour: str) -> None:
    async def main(store: RedlockStore) -> None:
        assert states([*await store.status()]) == ["new"] * 5
        assert isinstance(await store.claim(claim()), Granted)
        assert states([*await store.status()]) == ["voting"] * 5

    run(colour, steady().url(f"{uuid4().hex}:"), main)


def test_two_clients_that_start_new_nodes_at_once_do_not_both_hold() -> None:
    for _ in range(5):
        url, wanted = steady().url(f"{uuid4().hex}:"), [claim(), claim()]
        stores = [opened(url), opened(url)]

        async def main(store: RedlockStore, url: str = url, wanted: list[Claim] = wanted) -> None:
            other = opened(url)
            answers = [await store.claim(wanted[0]), await other.claim(wanted[1])]
            assert [type(answer) for answer in answers] == [Granted, Busy]
            await other.close()

        run("sync", url, main)
        for store in stores:
            store._recovery.close()


@COLOURS
def test_a_second_round_passes_a_node_that_has_seen_more(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"
    more = time.time_ns() // 1000 + 3_600_000_000  # another client's clock is an hour ahead

    async def main(store: RedlockStore) -> None:
        await pair(store)
        for node in (0, 1, 2):
            (seat,) = say(servers[node], "ZRANGEBYSCORE", f"{prefix}\x1fquorum", "-0.2", "-0.2")
            say(servers[node], "ZADD", f"{prefix}\x1fquorum", f"{more}", f"={seat.decode()}{prefix}x")
        _, token = await pair(store)
        assert token > more
        assert (await pair(store))[1] > token

    run(colour, servers.url(prefix), main)


@COLOURS
@pytest.mark.parametrize("number", [str(79 * 10**14), str(2**53), "1e17"])
def test_no_number_is_proposed_that_a_score_could_not_tell_from_the_next(colour: str, number: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            for server in servers.all:
                say(server, "ZADD", "\x1fquorum", number, "floor")
            for _ in range(2):
                with pytest.raises(StoreUnfit, match="delete the key"):
                    await store.claim(claim("new"))
                assert states([*await store.view("new")]) == ["free"] * 3
            for server in servers.all:
                say(server, "DEL", "\x1fquorum")
            for state in await store.status():
                assert state.reachable

            async def again() -> bool:
                try:
                    return isinstance(await store.claim(claim("y")), Granted)
                except StoreUnavailable:
                    return False

            await store.init()
            await until(store, again)

        run(colour, servers.url(), main)


@COLOURS
def test_bare_set_nx_on_a_majority_excludes_us_and_on_a_minority_does_not(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        for node in (0, 1):
            assert say(servers[node], "SET", f"{prefix}x", "theirs", "NX", "PX", "20000") == b"OK"
        await pair(store)
        assert say(servers[2], "SET", f"{prefix}x", "theirs", "NX", "PX", "20000") == b"OK"
        refused = await store.claim(claim())
        assert isinstance(refused, Busy)
        assert refused.retry_after <= 0.05

        async def theirs() -> bool:
            return [say(server, "GET", f"{prefix}x") for server in servers.all] == [b"theirs"] * 3 + [
                None
            ] * 2

        await until(store, theirs)
        held = claim("y")
        assert isinstance(await store.claim(held), Granted)
        assert say(servers[4], "SET", f"{prefix}y", "theirs", "NX", "PX", "20000") is None
        await store.release("y", held.id)

    run(colour, servers.url(prefix), main)


@COLOURS
def test_who_waits_on_one_of_the_nodes_alone_is_handed_what_the_quorum_releases(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        held = claim()
        assert isinstance(await store.claim(held), Granted)
        with interlock.connect(servers[0].url(prefix)) as alone, ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(alone.lock("x").acquire, timeout=PATIENCE)

            async def queued() -> bool:
                return len(alone.inspect("x").standings) == 2

            await until(store, queued)
            with at_most(5.0):
                assert await store.release("x", held.id)
                lease = waiting.result()
                assert lease is not None
                lease.release()

    run(colour, servers.url(prefix), main)


@COLOURS
def test_a_claim_that_gets_no_majority_leaves_nothing_anywhere(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        await pair(store)
        for node in (0, 1, 2):
            say(servers[node], "SET", f"{prefix}x", "theirs", "PX", "20000")
        assert isinstance(await store.claim(claim()), Busy)

        async def clean() -> bool:
            return [say(servers[node], "EXISTS", f"{prefix}x") for node in (3, 4)] == [0, 0]

        await until(store, clean, 2.0)  # told, not waited for

    run(colour, servers.url(prefix), main)


@COLOURS
def test_scripts_that_were_flushed_are_sent_again(colour: str) -> None:
    servers = steady()

    async def main(store: RedlockStore) -> None:
        await pair(store)
        for server in servers.all:
            say(server, "SCRIPT", "FLUSH")
        await pair(store)

    run(colour, servers.url(f"{uuid4().hex}:"), main)


# ---- renewals ----------------------------------------------------------------------


@COLOURS
def test_a_renewal_fills_in_nodes_that_miss_what_a_majority_holds(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        held = claim()
        granted = await store.claim(held)
        assert isinstance(granted, Granted)
        for node in (0, 1):
            say(servers[node], "DEL", f"{prefix}x")
        assert await store.renew([Renewal("x", held.id, LONG)]) == [Renewed(LONG)]

        async def everywhere() -> bool:
            return all(
                [(s.id, s.token) for s in view.standings] == [(held.id, granted.token)]
                for view in await store.view("x")
            )

        await until(store, everywhere)
        assert await store.release("x", held.id)

    run(colour, servers.url(prefix), main)


@COLOURS
def test_nothing_is_filled_in_once_a_majority_misses_it(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        held = claim()
        assert isinstance(await store.claim(held), Granted)
        for node in (0, 1, 2):
            say(servers[node], "DEL", f"{prefix}x")
        assert await store.renew([Renewal("x", held.id, LONG)]) == [Gone()]
        assert states([*await store.view("x")]) == ["free"] * 3 + ["granted"] * 2
        assert (await store.inspect("x")).standings == ()
        await store.release("x", held.id)

    run(colour, servers.url(prefix), main)


@COLOURS
def test_a_renewal_nobody_can_decide_is_no_answer(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            held = claim()
            assert isinstance(await store.claim(held), Granted)
            servers[0].kill()
            servers[1].kill()
            (answer,) = await store.renew([Renewal("x", held.id, LONG)])
            assert isinstance(answer, NoAnswer)
            assert f":{servers[0].port}" in answer.why

        run(colour, servers.url(), main)


# ---- nodes that are away -------------------------------------------------------------


@COLOURS
def test_two_dead_of_five_cost_their_timeout_once_and_then_nothing(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            servers[1].kill()
            servers[3].kill()
            await pair(store)
            took = sorted([(await pair(store))[0] for _ in range(40)])
            assert took[20] < 0.045  # less than a node's timeout: nobody waits for them
            tokens = [(await pair(store))[1] for _ in range(5)]
            assert tokens == sorted(set(tokens))
            (view,) = [v for v in await store.view("x") if str(servers[1].port) in v.label]
            assert view.state != "granted"

        run(colour, servers.url(), main)


@COLOURS
def test_a_hung_node_costs_its_timeout_once_and_its_late_replies_are_dropped(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            with servers[2].frozen():
                took = sorted([(await pair(store))[0] for _ in range(60)])
                assert took[30] < 0.045
                with at_most(1.0):
                    await store.inspect("x")  # wants to hear everybody who is here
                    await store.inspect("x")
                took = sorted([(await pair(store, "y"))[0] for _ in range(20)])
                assert took[10] < 0.045

            async def whole() -> bool:
                held = claim("z")
                assert isinstance(await store.claim(held), Granted)
                views = await store.view("z")
                await store.release("z", held.id)
                return all([s.id for s in view.standings] == [held.id] for view in views)

            await until(store, whole)
            for name in ("x", "y"):
                assert (await store.inspect(name)).standings == ()
                await until(store, partial(free, store, name))

        run(colour, servers.url(), main)


@COLOURS
def test_a_hung_node_without_a_connection_does_not_keep_the_others_from_being_heard(colour: str) -> None:
    """Or who looks after the nodes would call all of them away, and then every request would wait for the hung one."""
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            say(servers[2], "CLIENT", "KILL", "TYPE", "normal")
            with servers[2].frozen():
                for _ in range(3):
                    assert states([*await store.status()]).count("voting") == 4
                await pair(store)  # which finds that it is away
                took = sorted([(await pair(store))[0] for _ in range(20)])
                assert took[10] < 0.045

        run(colour, servers.url(), main)


@COLOURS
def test_a_node_that_hangs_for_long_is_waited_for_by_nobody(colour: str) -> None:
    """Its connection is closed when too much is unanswered; the polls that follow must not slow down the callers."""
    with quorum(5) as servers:

        async def pairs(store: RedlockStore, seconds: float) -> list[float]:
            end, took = time.monotonic() + seconds, [0.0]
            while time.monotonic() < end:
                took += [(await pair(store))[0] for _ in range(20)]
            return sorted(took)

        async def main(store: RedlockStore) -> None:
            await started(store)
            before = await pairs(store, 1.0)
            with servers[2].frozen():
                took = await pairs(store, 5.0)
            after = await pairs(store, 1.0)
            # A busy machine runs the other servers late as well: the slowest pair without the hang shows by how much.
            assert took[-5] < 0.1 + max(before[-1], after[-1])

        run(colour, servers.url(), main)


async def free(store: RedlockStore, name: str) -> bool:
    """Whether every node has been told of the release: a majority is enough for its caller."""
    return set(states([*await store.view(name)])) == {"free"}


@COLOURS
def test_a_hung_majority_is_told_in_time_and_in_one_sentence(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            for node in (0, 1):
                servers[node].freeze()
            try:
                with at_most(2.0):
                    with pytest.raises(StoreUnavailable, match="needs 2 of 3 nodes"):
                        await store.claim(claim())
            finally:
                for node in (0, 1):
                    os.kill(servers[node].pid, signal.SIGCONT)

            async def again() -> bool:
                wanted = claim("y")
                try:
                    granted = isinstance(await store.claim(wanted), Granted)
                except InterlockError:
                    return False
                await store.release("y", wanted.id)
                return granted

            await until(store, again)

        run(colour, servers.url(), main)


@COLOURS
def test_a_node_that_comes_back_is_used_again(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            servers[0].kill()  # it may not have read the release: it is told again
            await pair(store)
            servers[0].start()
            servers[1].kill()  # now the one that came back is needed

            async def again() -> bool:
                try:
                    await pair(store)
                except (InterlockError, AssertionError):
                    return False
                return True

            await until(store, again)

        run(colour, servers.url(), main)


@COLOURS
def test_a_node_that_was_away_is_told_what_was_released(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            held = claim()
            assert isinstance(await store.claim(held), Granted)

            async def everywhere() -> bool:
                return states([*await store.view("x")]) == ["granted"] * 3

            await until(store, everywhere)
            servers[0].kill()
            await store.inspect("x")  # hears that it is away
            assert await store.release("x", held.id)
            servers[0].start()

            async def nowhere() -> bool:
                return states([*await store.view("x")]) == ["free"] * 3

            await until(store, nowhere)

        run(colour, servers.url(), main)


@COLOURS
def test_a_release_is_done_where_its_script_was_flushed_and_nobody_waits(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            held = claim()
            assert isinstance(await store.claim(held), Granted)

            async def everywhere() -> bool:
                return states([*await store.view("x")]) == ["granted"] * 3

            await until(store, everywhere)
            say(servers[0], "SCRIPT", "FLUSH")
            with servers[0].frozen():
                assert await store.release("x", held.id)

            async def nowhere() -> bool:
                return states([*await store.view("x")]) == ["free"] * 3

            await until(store, nowhere)

        run(colour, servers.url(), main)


# ---- nodes that lost their memory ------------------------------------------------------


@COLOURS
def test_an_empty_restart_has_no_vote_until_its_quarantine_is_over(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            held, asked = claim(ttl=0.6), time.monotonic()
            granted = await store.claim(held)
            assert isinstance(granted, Granted)
            servers[0].restart()
            other = opened(servers.url())
            began = time.monotonic()
            # Its vote and that of one more node would be a majority beside the holder's.
            say(servers[1], "DEL", "x")
            while time.monotonic() < asked + 0.5:  # then it lapses on the node that has it still
                try:
                    answer = await other.claim(claim(ttl=0.6), 0.2)
                except StoreUnavailable:
                    continue
                assert isinstance(answer, Busy) or time.monotonic() > asked + 0.6
            await other.close()

            async def back() -> bool:
                await store.renew([Renewal("y", "nobody", 0.6)])  # hears all, and so who has no vote
                return states([*await store.status()]) == ["voting"] * 3

            await until(store, back)
            assert time.monotonic() - began > 0.5
            status = await store.status()
            assert all(state.top >= granted.token for state in status)

        run(colour, servers.url(), main)


def test_a_min_hold_outlives_minorities_that_lose_their_memory_one_after_the_other() -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            held = claim(ttl=1.0)
            assert isinstance(await store.claim(held), Granted)
            assert await store.release("x", held.id, 60.0)
            say(servers[0], "FLUSHALL")
            other = opened(servers.url())
            began = time.monotonic()
            # Long enough for a node whose quarantine follows the ttl.
            while time.monotonic() < began + 5.0:
                await store.renew([Renewal("y", "nobody", 1.0)])  # hears all, and so who has no vote
                assert isinstance(await other.claim(claim(ttl=1.0), 0.5), Busy)
                time.sleep(0.2)
            status = (await other.status())[0]
            assert status.state == "quarantined"
            assert status.quarantine_left > 30
            await other.close()

        run("sync", servers.url(), main)


def test_the_classic_two_holders_of_an_empty_restart_do_not_happen() -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            for node in (3, 4):
                servers[node].kill()
            held = claim(ttl=5.0)
            assert isinstance(await store.claim(held), Granted)  # on 0, 1, 2
            servers[2].restart()  # empty
            for node in (3, 4):
                servers[node].start()
            other = opened(servers.url())
            for _ in range(5):
                with pytest.raises(StoreUnavailable, match="no vote"):
                    assert isinstance(await other.claim(claim()), Busy)
            await other.close()

        run("sync", servers.url(), main)


@COLOURS
def test_a_flushed_node_has_no_vote(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            say(servers[0], "FLUSHALL")
            await pair(store)
            assert "voting" not in states([(await store.status())[0]])
            servers[1].kill()
            with pytest.raises(StoreUnavailable, match="no vote"):
                await store.claim(claim())

        run(colour, servers.url(), main)


@COLOURS
def test_a_restart_that_lost_nothing_keeps_its_vote(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            held = claim()
            granted = await store.claim(held)
            assert isinstance(granted, Granted)
            for server in servers.all:
                server.restart()

            async def renewed() -> bool:
                (answer,) = await store.renew([Renewal("x", held.id, LONG)])
                assert not isinstance(answer, Gone)
                return isinstance(answer, Renewed)

            await until(store, renewed)
            assert states([*await store.status()]) == ["voting"] * 3
            assert (await store.inspect("x")).standings[0].token == granted.token

        run(colour, servers.url(), main)


def test_a_replica_that_took_a_nodes_place_has_no_vote() -> None:
    durable = (*DURABLE, "--repl-diskless-sync-delay", "0")
    with quorum(3, *durable) as servers, running(*durable) as replica:

        async def main(store: RedlockStore) -> None:
            await pair(store)
            say(replica, "REPLICAOF", "127.0.0.1", str(servers[0].port))

            async def follows() -> bool:
                return b"master_link_status:up" in say(replica, "INFO", "replication")

            await until(store, follows)
            servers[0].kill()
            say(replica, "REPLICAOF", "NO", "ONE")
            say(replica, "CONFIG", "SET", "port", str(servers[0].port))

            async def met() -> bool:
                await store.inspect("x")
                return (await store.status())[0].reachable

            await until(store, met)
            assert (await store.status())[0].state in ("restarted", "quarantined")

        run("sync", servers.url(), main)


@COLOURS
def test_a_restart_that_may_have_lost_something_has_no_vote(colour: str) -> None:
    with quorum(3, "--appendonly", "yes", "--appendfsync", "everysec") as servers:

        async def main(store: RedlockStore) -> None:
            await started(store)

            async def on_disk() -> bool:
                return b"aof_pending_bio_fsync:0" in say(servers[0], "INFO", "persistence")

            await until(store, on_disk)
            servers[0].restart()

            async def noticed() -> bool:
                await store.renew([Renewal("y", "nobody", LONG)])
                return states([*await store.status()]) == ["quarantined", "voting", "voting"]

            await until(store, noticed)

        run(colour, servers.url(), main)


@COLOURS
def test_a_lost_majority_is_refused_until_an_operator_says_so(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            _, before = await pair(store)
            for node in (0, 1, 2):
                say(servers[node], "FLUSHALL")
            with pytest.raises(StoreUnavailable, match="interlock quorum init"):
                await store.claim(claim())
            with pytest.raises(StoreUnavailable, match="interlock quorum init"):
                await store.admit(f"127.0.0.1:{servers[0].port}")
            assert states([*await store.init()]) == ["voting"] * 5
            assert (await pair(store))[1] > before

        run(colour, servers.url(), main)


@COLOURS
def test_a_lost_majority_is_refused_though_the_others_have_never_voted(colour: str) -> None:
    with quorum(3) as servers:

        async def hold(store: RedlockStore) -> None:
            await until(store, partial(has_votes, store, 3))
            say(servers[2], "ACL", "SETUSER", "default", "-evalsha", "-eval")  # it misses the vote
            assert isinstance(await patiently(store, partial(store.claim, claim(ttl=3600.0))), Granted)
            for node in (0, 1):
                servers[node].restart()
            say(servers[2], "ACL", "SETUSER", "default", "+@all")

        async def want(store: RedlockStore) -> None:
            with pytest.raises(StoreUnavailable):
                await store.inspect("x")
            await until(store, partial(rested, store))
            await store._recovery.run_once(PATIENCE)
            with pytest.raises(StoreUnavailable, match="interlock quorum init"):
                await store.claim(claim())

        async def has_votes(store: RedlockStore, votes: int) -> bool:
            await store._recovery.run_once(PATIENCE)
            return sum(state.votes for state in await store.status()) == votes

        async def rested(store: RedlockStore) -> bool:
            found = (await store.status())[:2]
            return all(state.votes or (state.since and not state.quarantine_left) for state in found)

        run(colour, servers.url(), hold)
        run(colour, servers.url(), want)


def test_an_operator_admits_a_node_before_its_time() -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            _, before = await pair(store)
            say(servers[2], "FLUSHALL")
            await pair(store)
            place = f"127.0.0.1:{servers[2].port}"
            waiting = (await store.status())[2]
            assert not waiting.votes
            admitted = await store.admit(place)
            assert admitted.votes
            assert admitted.top >= before

        run("sync", servers.url(), main)


def test_init_wants_to_reach_every_node_unless_it_is_told_otherwise() -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            servers[2].kill()
            with pytest.raises(StoreUnavailable, match="not all nodes can be reached"):
                await store.init()
            await store.init(missing=True)
            await pair(store)

        run("sync", servers.url(), main)


def test_connections_that_the_servers_closed_while_idle_are_replaced_unseen() -> None:
    servers = steady()

    async def main(store: RedlockStore) -> None:
        await pair(store)
        for server in servers.all:
            say(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(UNCHECKED_S + 0.05)  # the time after which a connection is looked at
        await pair(store)

    run("sync", servers.url(f"{uuid4().hex}:"), main)


def test_a_forked_child_has_connections_of_its_own() -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        await pair(store)
        child = os.fork()
        if child == 0:
            try:
                store.after_fork()
                store.claim(claim("child")).send(None)
            except StopIteration as end:
                os._exit(0 if isinstance(end.value, Granted) else 1)
            finally:
                os._exit(2)
        for _ in range(20):
            await pair(store)
        assert os.waitpid(child, 0)[1] == 0
        assert [s.admitted for s in (await store.inspect("child")).standings] == [True]

    run("sync", servers.url(prefix), main)


def test_an_interrupted_ask_spoils_no_later_reply() -> None:
    servers: Servers = steady()

    async def main(store: RedlockStore) -> None:
        await pair(store)
        transport = store._quorum.transport

        def boom(node: int, reply: object, sent: float, received: float) -> bool:
            raise KeyboardInterrupt

        from interlock.backends.redlock.transport.timeouts import Timeouts
        from interlock.backends.redlock.wire.requests import CheckIn

        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                await transport.ask(CheckIn(), range(5), range(5), boom, Timeouts(1.0, 1.0, 5))
            await pair(store)

    run("sync", servers.url(f"{uuid4().hex}:"), main)
