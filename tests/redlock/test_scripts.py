"""The scripts do on a real server what `node` says in Python, whatever is asked in whatever order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis.address import Address
from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.requests import (
    BUSY,
    EVICTED,
    MISMATCH,
    NO_VOTE,
    TOO_LOW,
    Admit,
    CheckIn,
    Evict,
    Inspect,
    Release,
    Renew,
    RenewalItem,
    Request,
    Scan,
    Start,
    Vote,
    decoded,
)
from interlock.model import EVERYTHING, Busy, Claim, Granted, Standing
from interlock.testing.redlock_node import MIN_NUMBERS_KEPT, OLD_US, NodeMemory
from interlock.testing.servers.redis import Server, running
from interlock.testing.servers.redlock import DURABLE, say
from interlock.urls import open_store

SHORT = 0.06  # seconds: a ttl that lapses within a run
YES: list[Any] = []  # nothing but the clock
REMOVED = [1]  # a release found its claim
EDGE = 4000  # us around a lapse within which two clocks may disagree


class Pair:
    """A server and its specification, asked the same; the specification's clock is what the server said."""

    def __init__(self, server: Server, durable: bool = False) -> None:
        self.server = server
        self.prefix = f"{uuid4().hex}:"
        self._packing = Packing(self.prefix)
        self._address = Address.of_url(server.url().partition("?")[0])
        self.now = 0
        run = say(server, "INFO", "server").partition(b"run_id:")[2].partition(b"\r")[0].decode()
        self.node = NodeMemory(lambda: self.now, run, durable)
        self.connect()

    def connect(self) -> None:
        self._transport = BlockingQuorumTransport([self._address], self._packing, time.monotonic)

    def ask(self, request: Request) -> list[Any]:
        """What the server answers."""
        got: list[Any] = []

        def on_reply(node: int, reply: Any, sent: float, received: float) -> bool:
            got.append(reply)
            return True

        drive(self._transport.ask(request, (0,), (0,), on_reply, Timeouts(5.0, 5.0, 1)))
        assert got, f"no answer to {request}"
        return words(request, got[0])

    def both(self, request: Request) -> tuple[list[Any], list[Any]]:
        """Both answers, without what no two clocks agree on."""
        self._stand_clear()
        real = self.ask(request)
        self.now = real[0]
        return plain(request, real), plain(request, words(request, self.node.answer(request)))

    def agree(self, request: Request) -> list[Any]:
        """What both answer, without the seat."""
        real, meant = self.both(request)
        assert real == meant, f"{request}: the script says {real}, the specification {meant}"
        return [part for part in real if not isinstance(request, Vote) or part != self.seat]

    @property
    def seat(self) -> str:
        seat: bytes = self.node.quorum.get("seat", b"")
        return seat.decode()

    def named(self, claim: Claim, ballot: int, seat: str | None = None) -> Vote:
        """A vote that names the seat that the node has, or another."""
        return Vote(claim, ballot, seats=((seat or self.seat).encode(),))

    def _stand_clear(self) -> None:
        """Not at the very instant at which something lapses."""
        while True:
            now = time.time_ns() // 1000
            lapses = [s.lapses for stands in self.node.claims.values() for s in stands.values()]
            if not any(abs(lapse - now) < EDGE for lapse in lapses):
                return
            time.sleep(0.001)

    def admitted(self) -> None:
        self.agree(CheckIn())
        since = self.node.quorum["since"] = self.ask(CheckIn())[2]
        assert self.agree(Admit(since, 0, 0)) == [1]


def words(request: Request, reply: Any) -> list[Any]:
    """The reply as a list that begins with the node's clock; a release does not tell it, and this is the same machine."""
    if isinstance(request, Release):
        assert isinstance(reply, int), reply
        return [time.time_ns() // 1000, reply]
    assert isinstance(reply, bytes | int | list), reply
    if isinstance(reply, bytes):  # the seat, if it is told, may follow the clock
        clock, *seat = reply.split()
        return [int(clock), *seat]
    return reply if isinstance(reply, list) else [reply]


def plain(request: Request, reply: list[Any]) -> list[Any]:
    said = list(reply[1:])
    if isinstance(request, Vote) and said[:1] == [BUSY]:
        holder = Packing.standing(reply) if isinstance(reply[4], bytes) else reply[4]
        assert holder is not None
        return [*said[:2], shown(holder)]
    if isinstance(request, Vote | Renew):
        said = [decoded(part) if isinstance(part, bytes) else part for part in said]
    if isinstance(request, Inspect | Evict):
        standings: tuple[Standing, ...] = reply[-1]
        said[-1] = sorted([shown(standing) for standing in standings])
    if isinstance(request, CheckIn):
        said[1] = said[1] and "some time"
    return said


def shown(standing: Standing) -> tuple[object, ...]:
    return standing.id, standing.token, standing.permits, standing.note, standing.who


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def test_a_new_node_has_no_vote_until_it_is_admitted(server: Server) -> None:
    pair, claim = Pair(server), Claim("x", "a", 30.0)
    assert pair.agree(Vote(claim, 7)) == [NO_VOTE]
    pair.agree(CheckIn(read_only=True))
    assert pair.agree(Vote(claim, 7)) == [NO_VOTE]
    pair.admitted()
    assert pair.agree(Vote(claim, 7)) == YES


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_claim_that_lingers_counts_as_long_as_a_ttl(server: Server, capacity: int) -> None:
    """While it lingers, a node that lost its memory must not get its vote back."""
    pair = Pair(server)
    pair.admitted()
    assert pair.agree(Vote(Claim("x", "a", 2.0, 1, capacity), 7)) == YES
    assert pair.agree(CheckIn())[3] == 2000
    assert pair.agree(Release("x", "a", 40.0)) == REMOVED
    assert pair.agree(CheckIn())[3] == 40_000
    assert pair.agree(Release("x", "nobody", 50.0)) == [0], "what does not stand does not linger"
    assert pair.agree(CheckIn())[3] == 40_000
    assert pair.agree(Vote(Claim("y", "a", 2.0), 8)) == YES
    assert pair.agree(Release("y", "a", 30.0)) == REMOVED
    assert pair.agree(CheckIn())[3] == 40_000


def test_a_number_is_accepted_once(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    first, second = Claim("x", "a", 30.0, 1, EVERYTHING), Claim("x", "b", 30.0, 1, EVERYTHING)
    assert pair.agree(Vote(first, 7)) == YES
    assert pair.agree(Vote(first, 7)) == [TOO_LOW, 7]
    assert pair.agree(Vote(second, 7)) == [TOO_LOW, 7]
    assert pair.agree(Vote(second, 8)) == YES
    assert pair.agree(Vote(first, 7)) == [TOO_LOW, 8]


def test_a_vote_tells_the_seat_to_a_client_that_does_not_know_it(server: Server) -> None:
    pair, claim = Pair(server), Claim("x", "a", 30.0)
    pair.admitted()
    said = [pair.ask(Vote(claim, ballot, seats=(seat,)))[1:] for ballot, seat in ((7, None), (8, b":1"))]
    assert said == [[pair.seat.encode()]] * 2
    assert pair.ask(Vote(claim, 9, seats=(pair.seat.encode(),)))[1:] == []


def test_a_vote_that_names_the_seat_raises_a_number_that_is_known_and_enters_the_claim(
    server: Server,
) -> None:
    pair, claim = Pair(server), Claim("x", "a", 30.0, who='["né"]')
    pair.admitted()
    assert pair.agree(Vote(claim, 8)) == YES
    assert pair.agree(Release("x", "a")) == REMOVED
    assert pair.agree(pair.named(claim, 8)) == [TOO_LOW, 8], "a number is accepted once"
    assert pair.agree(Release("x", "a")) == REMOVED
    assert pair.agree(pair.named(claim, 9)) == YES
    assert pair.agree(Inspect("x"))[-1] == [("a", 9, 1, "", claim.who)]
    assert pair.agree(Renew((RenewalItem("x", "a", 30.0, None, None, 9),))) == [1, 1]
    refused = [BUSY, 1, ("a", 9, 1, "", claim.who)]
    assert pair.agree(pair.named(Claim("x", "b", 30.0), 10)) == refused
    assert pair.agree(Release("x", "a", 0.0, 9)) == REMOVED
    assert pair.agree(Vote(Claim("x", "b", 30.0), 10)) == YES, "a vote that was refused has raised the number"


def test_a_vote_does_not_count_where_the_memory_was_lost_or_the_seat_is_another(server: Server) -> None:
    pair, claim = Pair(server), Claim("x", "a", 30.0)
    pair.admitted()
    assert pair.agree(Vote(claim, 7)) == YES
    pair.agree(Release("x", "a"))
    old, unknown = pair.seat, ":1793000000000000"
    assert pair.ask(pair.named(claim, 8, unknown))[1:] == [old.encode()], "it went the long way"
    pair.node.answer(pair.named(claim, 8))
    pair.agree(Release("x", "a"))
    say(server, "FLUSHALL")
    pair.node.flush()
    assert pair.agree(pair.named(claim, 9, old)) == [NO_VOTE]
    assert pair.agree(CheckIn(read_only=True)) == ["", 0, 0, 0, 0, 0, pair.node.run, 0, 0, 0], (
        "it left something"
    )
    pair.admitted()  # it begins anew, and somebody else uses the name
    assert pair.agree(Vote(Claim("x", "b", 1.0), 10)) == YES
    pair.agree(Release("x", "b"))
    assert pair.agree(CheckIn(read_only=True))[3] == 1000, "it does not remember a ttl of 30 s"
    pair.agree(pair.named(claim, 11, old))
    assert pair.agree(CheckIn(read_only=True))[3] == 30_000, "it granted a ttl that it does not remember"


def test_a_vote_beside_sharers_or_after_an_eviction_is_refused_and_changes_nothing(server: Server) -> None:
    pair, claim = Pair(server), Claim("x", "a", 30.0)
    pair.admitted()
    assert pair.agree(Vote(claim, 7)) == YES
    pair.agree(Release("x", "a"))
    assert pair.agree(Vote(Claim("x", "r", 30.0, 1, EVERYTHING), 8)) == YES
    assert pair.agree(pair.named(claim, 9)) == [MISMATCH, EVERYTHING]
    assert [shown[0] for shown in pair.agree(Inspect("x"))[-1]] == ["r"]
    pair.agree(Release("x", "r"))
    assert pair.agree(Vote(claim, 9)) == YES, "a vote that was refused has raised the number"
    pair.agree(Evict("x", "a", "drill"))
    assert pair.agree(pair.named(claim, 10)) == [EVICTED, "drill"]
    assert not pair.agree(Inspect("x"))[-1]
    assert pair.agree(pair.named(Claim("x", "b", 30.0), 10)) == YES


def test_a_name_that_looks_like_a_seat_and_another_name_has_its_own_number(server: Server) -> None:
    """The seat and the name stand side by side in the name of a number, and a client may know only half of the seat."""
    pair = Pair(server)
    pair.prefix = ""
    pair._packing = Packing("")
    pair.connect()
    pair.admitted()
    assert pair.agree(Vote(Claim("x", "a", 30.0), 7)) == YES
    alike = f"{pair.seat}x"
    assert pair.agree(Vote(Claim(alike, "a", 30.0), 8)) == YES
    assert pair.agree(Vote(Claim(alike, "a", 30.0), 8)) == [TOO_LOW, 8]
    pair.agree(Release("x", "a"))
    assert pair.agree(Vote(Claim("x", "a", 30.0), 8)) == YES, "it had the number of another name"


def test_what_is_refused_changes_nothing(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    pair.agree(Vote(Claim("x", "a", 30.0), 7))
    assert pair.agree(Vote(Claim("x", "b", 30.0, who="[2]"), 9)) == [BUSY, 1, ("a", 7, 1, "", "")]
    assert pair.agree(Release("x", "a")) == REMOVED
    assert pair.agree(Vote(Claim("x", "c", 30.0), 8)) == YES


def test_a_late_release_of_a_failed_attempt_leaves_the_next_one_alone(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    for claim in (Claim("x", "a", 30.0), Claim("y", "a", 30.0, 1, EVERYTHING)):
        pair.agree(Vote(claim, 9))
        pair.agree(Vote(claim, 8, fill=True))  # late, too: what stands keeps its number
        assert pair.agree(Release(claim.resource, "a", 0.0, 8)) == [0]
        assert len(pair.agree(Inspect(claim.resource))[-1]) == 1
        assert pair.agree(Release(claim.resource, "a", 0.0, 9)) == REMOVED


def test_a_leftover_of_another_number_is_not_renewed_but_filled(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    for claim in (Claim("x", "a", 30.0), Claim("y", "a", 30.0, 1, EVERYTHING)):
        pair.agree(Vote(claim, 7))
        prolong = Renew((RenewalItem(claim.resource, "a", 30.0, None, None, 9),))
        assert pair.agree(prolong) == [1, 2]
        pair.agree(Vote(Claim(claim.resource, "b", 30.0, 1, claim.capacity), 20))
        assert pair.agree(Vote(claim, 9, fill=True)) == YES
        assert pair.agree(prolong) == [1, 1]


def test_a_foreign_lock_is_in_the_way_and_is_left_alone(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    assert say(server, "SET", f"{pair.prefix}x", "theirs", "NX", "PX", "30000") == b"OK"
    pair.now = time.time_ns() // 1000
    assert pair.node.set_nx("x", "theirs", 30.0)
    assert pair.agree(Vote(Claim("x", "a", 30.0), 7)) == [BUSY, 1, ("", 0, 1, "", "another program")]
    assert pair.agree(Release("x", "theirs")) == [0]
    pair.agree(Inspect("x"))


def test_flushed_memory_has_no_vote(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    pair.agree(Vote(Claim("x", "a", 30.0), 7))
    say(server, "FLUSHALL")
    pair.node.flush()
    assert pair.agree(Vote(Claim("x", "b", 30.0), 8)) == [NO_VOTE]
    assert pair.agree(Renew((RenewalItem("x", "a", 30.0, None, None, 0),))) == [NO_VOTE, 1]


def test_a_node_that_restarts_without_loss_keeps_its_vote_and_accepts_no_lower_number() -> None:
    with running(*DURABLE) as server:
        pair = Pair(server, durable=True)
        pair.admitted()
        for name, ballot in (("x", 100), ("y", 60)):
            assert pair.agree(Vote(Claim(name, "a", 30.0), ballot)) == YES
            pair.agree(Release(name, "a"))
        server.restart()
        drive(pair._transport.close())
        pair.connect()
        pair.node.restart(say(server, "INFO", "server").partition(b"run_id:")[2].partition(b"\r")[0].decode())
        assert pair.agree(Vote(Claim("x", "a", 30.0), 50)) == [NO_VOTE], "it has to check in first"
        pair.agree(CheckIn())
        for name in ("x", "y", "z"):
            assert pair.agree(Vote(Claim(name, "a", 30.0), 99)) == [TOO_LOW, 100]
            assert pair.agree(Vote(Claim(name, "a", 30.0), 101)) == YES
            pair.agree(Release(name, "a"))


def test_a_node_is_admitted_only_as_it_was_seen_and_when_its_time_has_come(server: Server) -> None:
    pair = Pair(server)
    pair.agree(CheckIn())
    since = pair.node.quorum["since"] = pair.ask(CheckIn())[2]
    assert pair.agree(Admit(since - 1, 0, 5)) == [0]
    assert pair.agree(Admit(since, 60_000, 5)) == [0]
    assert pair.agree(Admit(since, 0, 5)) == [1]
    assert pair.agree(Admit(since, 0, 5)) == [0]
    assert pair.agree(Vote(Claim("x", "a", 30.0), 5)) == [TOO_LOW, 5]
    assert pair.agree(Vote(Claim("x", "a", 30.0), 6)) == YES


def test_a_quarantine_that_begins_in_the_future_begins_now(server: Server) -> None:
    pair = Pair(server)
    pair.agree(CheckIn())
    now = pair.ask(CheckIn())[0] // 1000
    ahead = pair.node.quorum["since"] = now + 3_600_000  # by a clock that has been set right since
    say(server, "ZADD", f"{pair.prefix}\x1fquorum", str(-ahead), "since")
    pair.agree(CheckIn(read_only=True))
    assert pair.ask(CheckIn(read_only=True))[2] == ahead
    pair.agree(CheckIn())
    assert now <= pair.ask(CheckIn())[2] < now + 60_000
    assert now <= pair.node.quorum["since"] < now + 60_000


def test_a_new_node_begins_step_by_step_and_only_in_the_start_for_which_it_is_ready(server: Server) -> None:
    pair = Pair(server)
    pair.agree(CheckIn())
    since = pair.node.quorum["since"] = pair.ask(CheckIn())[2]
    assert pair.agree(Admit(since, 0, 0, start=7)) == [0], "it has not begun"
    assert pair.agree(Start(since, 7, begun=True)) == [0], "it is not ready"
    assert pair.agree(Start(since - 1, 7)) == [0], "it was in another life"
    assert pair.agree(Start(since, 6)) == [1]
    assert pair.agree(Start(since, 7)) == [1]
    assert pair.agree(Admit(since, 0, 0, start=7)) == [0], "it has not begun"
    assert pair.agree(Start(since, 6, begun=True)) == [0], "it is ready for another start"
    assert pair.agree(Start(since, 7, begun=True)) == [1]
    assert pair.agree(Start(since, 8)) == [0], "it has begun"
    pair.agree(CheckIn(read_only=True))
    assert pair.agree(Admit(since, 0, 0, start=8)) == [0]
    assert pair.agree(Admit(since, 0, 0, start=7)) == [1]
    pair.agree(CheckIn(read_only=True))
    say(server, "FLUSHALL")
    pair.node.flush()
    pair.agree(CheckIn())
    since = pair.node.quorum["since"] = pair.ask(CheckIn())[2]
    assert pair.agree(Start(since, 7)) == [1]
    assert pair.agree(Start(since, 0, begun=True)) == [1], "it is told that the others have begun"
    pair.agree(CheckIn(read_only=True))
    assert pair.agree(Admit(since, 0, 0, start=7)) == [0], "it is none of those that begin"


def test_what_a_node_remembers_is_right_after_a_vote_that_nobody_was_in_the_way_of(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    # As words 9 comes after 10, and 100 before both; a longer ttl must be remembered, a shorter one not.
    for name, ballot, ttl in (
        ("a", 10, 30.0),
        ("b", 9, 30.0),
        ("c", 11, 60.0),
        ("d", 100, 5.0),
        ("e", 101, 90.0),
    ):
        assert pair.agree(Vote(Claim(name, "i", ttl), ballot)) == YES
        pair.agree(CheckIn(read_only=True))
        pair.agree(Inspect(name))
        assert pair.agree(Vote(Claim(name, "j", ttl), ballot))[0] == BUSY
        assert pair.agree(Release(name, "i")) == REMOVED
        assert pair.agree(Vote(Claim(name, "j", ttl), ballot)) == [TOO_LOW, ballot]
        assert pair.agree(Release(name, "j")) == REMOVED


def test_a_release_that_the_server_refuses_to_hand_over_is_no_claim_that_was_gone() -> None:
    """A waiter of `redis://` on this node takes over, for which the server may have no memory, or the user no right."""
    with running() as server:
        pair = Pair(server)
        pair.admitted()
        ours, theirs = Claim("x", uuid4().hex, 30.0), Claim("x", uuid4().hex, 30.0)
        assert pair.agree(Vote(ours, 10**15)) == YES
        store = open_store(server.url(pair.prefix), Threads(), asynchronous=False)
        assert isinstance(drive(store.claim(theirs)), Busy)
        say(server, "ACL", "SETUSER", "default", "-set")
        with pytest.raises(AssertionError, match="can't run this command"):
            pair.ask(Release("x", ours.id))
        say(server, "ACL", "SETUSER", "default", "+set")
        assert pair.ask(Release("x", ours.id))[1:] == REMOVED
        assert say(server, "GET", f"{pair.prefix}x").startswith(theirs.id.encode()), (
            "it would have waited for seconds"
        )
        assert isinstance(drive(store.claim(theirs)), Granted)
        drive(store.close())


def test_many_idle_names_leave_one_small_set(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    old, seat = time.time_ns() // 1000 - 2 * OLD_US, pair.seat.encode()
    for n in range(3 * MIN_NUMBERS_KEPT):
        assert pair.ask(Vote(Claim(f"name-{n}", "a", 30.0), old + n, seats=(seat,)))[1:] == YES
        pair.ask(Release(f"name-{n}", "a"))
    for n in range(100):
        pair.ask(Vote(Claim("another", f"b{n}", 30.0), old + 4 * MIN_NUMBERS_KEPT + n))
        pair.ask(Release("another", f"b{n}"))
    assert say(server, "ZCARD", f"{pair.prefix}\x1fquorum") <= MIN_NUMBERS_KEPT + 8
    assert pair.ask(Vote(Claim("name-5", "a", 30.0), old + 5))[1] == TOO_LOW


def test_names_are_listed_in_steps(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    for n in range(20):
        capacity = 1 if n % 2 else EVERYTHING
        pair.agree(Vote(Claim(f"n{n}", "a", 30.0, 1, capacity), 7))
    names, cursor, steps = set[str](), "", 0
    while steps == 0 or cursor:
        _, cursor, found = pair.ask(Scan("n1", cursor))
        names.update(found)
        steps += 1
        assert steps < 1000
    assert names == set(words(scan := Scan("n1", ""), pair.node.answer(scan))[2])


def test_numbers_ahead_of_the_clock_leave_one_small_set_too(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    ahead = pair.ask(CheckIn(read_only=True))[0] + 10 * 365 * 86400 * 10**6  # the clock of one client, once
    pair.agree(Vote(Claim("now", "a", 1.0), 1))
    for n in range(3 * MIN_NUMBERS_KEPT):
        pair.both(Vote(Claim(f"n{n}", "a", SHORT), ahead + n))
    assert say(server, "ZCARD", f"{pair.prefix}\x1fquorum") <= 2 * MIN_NUMBERS_KEPT
    _, _, _, top, _, floor, *_ = pair.ask(CheckIn(read_only=True))
    assert top == ahead + 3 * MIN_NUMBERS_KEPT - 1
    assert ahead < floor <= top
    assert pair.ask(Vote(Claim("n0", "b", 1.0), ahead))[1:] == [TOO_LOW, floor]
    assert pair.ask(Vote(Claim("another", "b", 1.0), floor))[1:] == [TOO_LOW, floor]


def test_the_floor_never_falls(server: Server) -> None:
    pair = Pair(server)
    pair.admitted()
    key = f"{pair.prefix}\x1fquorum"
    ahead = pair.ask(CheckIn(read_only=True))[0] + 86400 * 10**6
    for n in range(2 * MIN_NUMBERS_KEPT):
        pair.ask(Vote(Claim(f"n{n}", "a", SHORT), ahead + n))
    floor = pair.ask(CheckIn(read_only=True))[5]
    assert floor >= ahead
    say(server, "ZADD", key, "7", "=a number of before that has become old meanwhile")
    for n in range(2 * MIN_NUMBERS_KEPT, 2 * MIN_NUMBERS_KEPT + 150):
        pair.ask(Vote(Claim(f"n{n}", "a", SHORT), ahead + n))
        assert pair.ask(CheckIn(read_only=True))[5] >= floor
    assert say(server, "ZSCORE", key, "=a number of before that has become old meanwhile") is None


@pytest.mark.parametrize("seed", range(6))
def test_the_scripts_agree_with_the_specification_whatever_is_asked(server: Server, seed: int) -> None:
    chance, pair = random.Random(seed), Pair(server)
    pair.agree(CheckIn())
    pair.node.quorum["since"] = pair.ask(CheckIn())[2]
    told: list[Request] = []
    for step in range(300):
        request = choose(chance, pair)
        told.append(request)
        real, meant = pair.both(request)
        assert real == meant, f"seed {seed}, step {step}, {told[-6:]}: {real}, the specification says {meant}"
        if chance.random() < 0.04:
            time.sleep(SHORT)


def choose(chance: random.Random, pair: Pair) -> Request:
    resource = chance.choice(["x", "y"])
    top = pair.node.top  # around it, and across 9, 99: as words, 10 comes before 9
    id, number = chance.choice("abc"), max(1, top + chance.randrange(-5, 4))
    capacity = 1 if resource == "x" else EVERYTHING
    permits = 1 if resource == "x" else chance.choice([1, EVERYTHING])
    ttl = chance.choice([SHORT, 30.0])
    draw = chance.random()
    if draw < 0.45:
        claim = Claim(resource, id, ttl, permits, capacity, note=chance.choice(["", "né\n"]), who="[1]")
        seat = chance.choice([pair.seat, "", ":1793000000000000"])
        if pair.node.quorum.get("longest", 0) < ttl * 1000:
            seat = ""  # no client names the seat then
        return Vote(claim, number, fill=chance.random() < 0.2, seats=(seat.encode() or None,))
    if draw < 0.6:
        note = chance.choice([None, "", "later"])
        shrunk = chance.choice([None, 1]) if resource == "y" else None
        item = RenewalItem(resource, id, ttl, note, shrunk, chance.choice([0, number]))
        return Renew((item, RenewalItem("y", "nobody", ttl, None, None, 0)))
    if draw < 0.75:
        linger = chance.choice([0.0, SHORT]) if resource == "x" else 0.0
        return Release(resource, id, linger, chance.choice([0, number]))
    if draw < 0.85:
        return Inspect(resource, chance.choice([None, 1, 2]))
    if draw < 0.88:
        return Evict(resource, chance.choice([None, id]), "drill")
    if draw < 0.9:
        return CheckIn(read_only=True)
    since = pair.node.quorum.get("since", 1)
    if draw < 0.96:
        return Start(since, chance.choice([0, 7, 8]), begun=chance.random() < 0.3)
    return Admit(
        since, chance.choice([0, 60_000]), chance.choice([0, number]), start=chance.choice([0, 0, 0, 7])
    )
