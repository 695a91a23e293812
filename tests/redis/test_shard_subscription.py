"""Messages reach a shard subscription in an unlucky order: a channel counts only where it is confirmed, and no waiter is left."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.backends.kit.listener import RECONNECT_PAUSE_S
from interlock.backends.redis.cluster import shard_subscription, sharded_pubsub
from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener
from interlock.backends.redis.cluster.slots import HostPort, read_map
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.pubsub.waiters import queue as topic
from interlock.backends.redis.wire.keys import ClusterKeys, slot
from interlock.backends.redis.wire.resp import ErrorReply, command
from interlock.testing.servers.sentinel import until
from tests.redis.topology import LAST, SERVER, entry

A, B = ("h", 1), ("h", 2)
HALF = 8000
LOW, HIGH = "key-1", "key-2"  # their slots are below and above the half
NEAR = "key-5"  # another slot of the same node as the first
PING = command(b"PING")
SOON = 5.0


class FakeConnection:
    """One connection; what the node says is put in by the test."""

    def __init__(self, lines: dict[HostPort, list[FakeConnection]], member: Any) -> None:
        self.sent: list[bytes] = []
        self.mute = False  # whether it gives no sign of life
        self._said: queue.Queue[Any] = queue.Queue()
        lines.setdefault(member.node, []).append(self)

    def says(self, first: Any, *rest: Any) -> None:
        self._said.put([first, *rest] if rest else first)

    def send(self, request: bytes) -> None:
        self.sent.append(request)
        if request == PING and not self.mute:
            self.says(b"PONG")

    def receive(self, timeout: float) -> list[Any]:
        try:
            said = self._said.get(timeout=timeout)
        except queue.Empty:
            return []
        if said is None:
            raise EOFError
        return [said]

    def hang_up(self) -> None:
        self._said.put(None)

    def share(self) -> None: ...
    def close(self) -> None: ...


class Waiting:
    """Somebody who waits for a resource."""

    def __init__(self, listener: ShardedListener, name: str) -> None:
        self.signal = threading.Event()
        self._listener, self._name = listener, name
        listener.listen(self.signal, topic(name))
        self.subscribed = listener.subscribed(listener.subscription_of(name)[0], self.signal)

    @property
    def woken(self) -> bool:
        return self.signal.wait(SOON)

    def leave(self) -> None:
        self._listener.forget(self.signal, topic(self._name))


class Stage:
    """A Cluster of two nodes that say what the test has them say."""

    def __init__(self) -> None:
        self.lines: dict[HostPort, list[FakeConnection]] = {}
        self.topology = Topology(SERVER, [A, B])
        self.has({A: (0, HALF - 1), B: (HALF, LAST)}, 1)
        self.listener = ShardedListener(self.topology, ClusterKeys(""))

    def has(self, shards: dict[HostPort, tuple[int, int]], epoch: int) -> None:
        told = [entry(*slots, (b"h", port, f"n{port}")) for (_, port), slots in shards.items()]
        found = read_map(told, b"", A)
        found.epoch = epoch
        assert self.topology._adopt(found)

    def channel(self, name: str) -> bytes:
        return self.listener.subscription_of(name)[0]

    def generation(self, name: str) -> int:
        return self.listener.subscription_of(name)[1]

    def line(self, place: HostPort, number: int = 0) -> FakeConnection:
        """The connections to a node, one after the other."""
        found: FakeConnection = until(
            lambda: len(self.lines.get(place, ())) > number and self.lines[place][number], SOON
        )
        return found

    def asked(self, line: FakeConnection, word: bytes, name: str, times: int = 1) -> None:
        until(lambda: line.sent.count(command(word, self.channel(name))) == times, SOON)

    def confirmed(self, line: FakeConnection, name: str) -> None:
        was = self.generation(name)
        line.says(b"ssubscribe", self.channel(name), 1)
        until(lambda: self.generation(name) > was, SOON)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    assert slot(LOW.encode()) != slot(NEAR.encode()) < HALF
    assert slot(LOW.encode()) < HALF <= slot(HIGH.encode())
    made = Stage()
    monkeypatch.setattr(
        shard_subscription, "connected", lambda member, timeout: FakeConnection(made.lines, member)
    )
    monkeypatch.setattr(shard_subscription, "QUIET_S", 0.05)
    monkeypatch.setattr(sharded_pubsub, "IDLE_CLOSE_S", 60.0)
    yield made
    made.listener.close()


def test_a_channel_is_asked_for_once_at_the_node_of_its_slot(stage: Stage) -> None:
    first, third = Waiting(stage.listener, LOW), Waiting(stage.listener, HIGH)
    stage.asked(stage.line(A), b"SSUBSCRIBE", LOW)
    second = Waiting(stage.listener, LOW)
    stage.asked(stage.line(B), b"SSUBSCRIBE", HIGH)
    assert not first.subscribed
    stage.confirmed(stage.line(A), LOW)
    assert first.woken
    assert second.woken
    assert not third.signal.is_set()
    assert Waiting(stage.listener, LOW).subscribed
    assert stage.line(A).sent.count(command(b"SSUBSCRIBE", stage.channel(LOW))) == 1
    assert command(b"SSUBSCRIBE", stage.channel(LOW)) not in stage.line(B).sent


def test_all_channels_of_a_slot_are_one(stage: Stage) -> None:
    assert stage.channel("{x}1") == stage.channel("{x}2") != stage.channel("y")
    assert slot(stage.channel("{x}1")) == slot(b"x")


def test_names_that_are_forgotten_keep_their_channels(stage: Stage) -> None:
    before = [stage.channel(f"n{n}") for n in range(5000)]
    assert [stage.channel(f"n{n}") for n in range(5000)] == before


def test_a_message_reaches_its_claim(stage: Stage) -> None:
    waiter = Waiting(stage.listener, LOW)
    stage.confirmed(stage.line(A), LOW)
    assert waiter.woken
    signal = threading.Event()
    stage.listener.listen(signal, b"id")
    stage.line(A).says(b"smessage", stage.channel(LOW), b"id 17")
    assert signal.wait(SOON)
    assert stage.listener.take_token(b"id") == 17


def test_who_is_sent_elsewhere_looks_again_and_the_node_is_not_believed(stage: Stage) -> None:
    waiter, other = Waiting(stage.listener, LOW), Waiting(stage.listener, NEAR)
    line = stage.line(A)
    stage.confirmed(line, NEAR)
    assert other.woken
    line.says(ErrorReply(f"MOVED {slot(LOW.encode())} h:2"))
    assert waiter.woken
    assert stage.topology.suspects == {A: B}
    stage.has({B: (0, LAST)}, 2)
    Waiting(stage.listener, LOW)
    stage.asked(stage.line(B), b"SSUBSCRIBE", LOW)
    assert stage.generation(NEAR), "another slot's channel was given up with it"


def test_who_waits_on_a_slot_that_moves_looks_again_and_its_channel_follows(stage: Stage) -> None:
    waiter, other = Waiting(stage.listener, LOW), Waiting(stage.listener, HIGH)
    stage.confirmed(stage.line(A), LOW)
    assert waiter.woken
    waiter = Waiting(stage.listener, LOW)
    assert waiter.subscribed
    stage.line(A).says(b"sunsubscribe", stage.channel(LOW), 0)
    assert waiter.woken
    assert stage.generation(LOW) == 0
    assert not other.signal.is_set()
    stage.has({B: (0, LAST)}, 2)
    assert not Waiting(stage.listener, LOW).subscribed
    stage.asked(stage.line(B), b"SSUBSCRIBE", LOW)


def test_what_ends_at_its_old_place_goes_on_at_the_new_one(stage: Stage) -> None:
    Waiting(stage.listener, LOW)
    old = stage.line(A)
    stage.asked(old, b"SSUBSCRIBE", LOW)  # and no answer
    stage.has({B: (0, LAST)}, 2)
    Waiting(stage.listener, LOW)
    stage.confirmed(stage.line(B), LOW)
    generation = stage.generation(LOW)
    old.hang_up()
    until(lambda: A not in stage.listener._subscriptions, SOON)
    assert stage.generation(LOW) == generation


def test_a_confirmation_that_comes_too_late_counts_for_nothing(stage: Stage) -> None:
    waiter = Waiting(stage.listener, LOW)
    line = stage.line(A)
    line.says(ErrorReply(f"MOVED {slot(LOW.encode())} h:2"))
    assert waiter.woken
    line.says(b"ssubscribe", stage.channel(LOW), 1)
    line.says(b"smessage", stage.channel(LOW), b"id 1")
    until(lambda: stage.listener.has_message(b"id"), SOON)
    assert stage.generation(LOW) == 0


def test_each_subscription_is_another(stage: Stage) -> None:
    """Who asked under the one before must look again."""
    found = set()
    for number in range(3):
        Waiting(stage.listener, LOW)
        line = stage.line(A, number)
        stage.confirmed(line, LOW)
        found.add(stage.generation(LOW))
        line.hang_up()
        until(lambda: not stage.generation(LOW), SOON)
    assert len(found) == 3


def test_a_connection_that_ends_wakes_all_who_wait_there_and_nobody_else(stage: Stage) -> None:
    waiters = [Waiting(stage.listener, name) for name in (LOW, LOW, HIGH)]
    stage.confirmed(stage.line(A), LOW)
    stage.confirmed(stage.line(B), HIGH)
    waiters = [Waiting(stage.listener, name) for name in (LOW, LOW, HIGH)]
    assert all(waiter.subscribed for waiter in waiters)
    stage.line(A).hang_up()
    assert waiters[0].woken
    assert waiters[1].woken
    assert not waiters[2].signal.is_set()
    assert not Waiting(stage.listener, LOW).subscribed
    stage.asked(stage.line(A, 1), b"SSUBSCRIBE", LOW)


def test_who_comes_while_a_channel_is_given_up_gets_it_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps = Waiting(stage.listener, NEAR)
    waiter, line = Waiting(stage.listener, LOW), stage.line(A)
    for name in (LOW, NEAR):
        stage.confirmed(line, name)
    waiter.leave()
    monkeypatch.setattr(sharded_pubsub, "IDLE_CLOSE_S", 0.0)
    stage.asked(line, b"SUNSUBSCRIBE", LOW)
    monkeypatch.setattr(sharded_pubsub, "IDLE_CLOSE_S", 60.0)
    assert stage.generation(LOW) == 0, "nobody may rely on it any more"
    back = Waiting(stage.listener, LOW)
    assert not back.subscribed
    line.says(b"sunsubscribe", stage.channel(LOW), 1)
    stage.asked(line, b"SSUBSCRIBE", LOW, 2)
    assert not back.signal.is_set(), "it was taken for a move"
    stage.confirmed(line, LOW)
    assert back.woken
    keeps.leave()


def test_a_refusal_is_left_to_those_who_look_and_tried_again_in_a_while(stage: Stage) -> None:
    waiter = Waiting(stage.listener, LOW)
    began = time.monotonic()
    stage.line(A).says(ErrorReply("NOPERM this user has no permissions"))
    assert waiter.woken
    assert not Waiting(stage.listener, LOW).subscribed
    until(lambda: A not in stage.listener._subscriptions, SOON)
    Waiting(stage.listener, LOW)
    stage.asked(stage.line(A, 1), b"SSUBSCRIBE", LOW)
    assert time.monotonic() - began >= RECONNECT_PAUSE_S, "it would be asked without end"


def test_when_another_is_master_those_who_wait_look_also_if_nobody_was_reached(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = threading.Event()

    def slow(member: Any, timeout: float) -> FakeConnection:
        if member.node == A:
            reached.wait(SOON)
        return FakeConnection(stage.lines, member)

    monkeypatch.setattr(shard_subscription, "connected", slow)
    waiter, other = Waiting(stage.listener, LOW), Waiting(stage.listener, HIGH)
    stage.has({B: (0, LAST)}, 2)
    stage.listener.resubscribe()
    assert waiter.signal.wait(SOON / 2)
    assert not other.signal.is_set(), "its master is the same"
    Waiting(stage.listener, LOW)
    stage.asked(stage.line(B), b"SSUBSCRIBE", LOW)
    reached.set()


def test_a_node_that_gives_no_sign_of_life_is_left_and_one_that_does_is_not(stage: Stage) -> None:
    Waiting(stage.listener, LOW)
    line = stage.line(A)
    stage.confirmed(line, LOW)
    waiter = Waiting(stage.listener, LOW)
    assert waiter.subscribed
    until(lambda: line.sent.count(PING) >= 5, SOON)
    assert not waiter.signal.is_set()
    line.mute = True
    assert waiter.woken
    assert stage.generation(LOW) == 0
