"""A request goes to the node of its slot, is repeated only if that is harmless, and ends when its time is up."""

from __future__ import annotations

import pytest

from interlock._core.drive import drive
from interlock.backends.redis.cluster.router import ASKING
from interlock.backends.redis.wire.keys import slot
from interlock.backends.redis.wire.resp import ErrorReply
from interlock.errors import ClientClosed, StoreUnavailable, Unreached
from tests.redis.topology import (
    HIGH,
    LAST,
    LOW,
    SILENT,
    A,
    B,
    C,
    Stage,
)

HALF = 8000


@pytest.fixture
def stage() -> Stage:
    assert slot(LOW.encode()) < HALF <= slot(HIGH.encode())
    return Stage({A: (0, HALF - 1), B: (HALF, LAST)})


def test_each_request_goes_to_the_node_that_has_its_slot(stage: Stage) -> None:
    stage.answers = {A: [b"a"], B: [b"b"]}
    assert [stage.ask(name) for name in (LOW, HIGH, LOW)] == [b"a", b"b", b"a"]
    assert stage.places == [A, B, A]


@pytest.mark.parametrize("again", [True, False])
def test_what_moved_is_asked_for_there_and_the_next_goes_there_at_once(stage: Stage, again: bool) -> None:
    stage.answers = {A: [ErrorReply("MOVED 1 h:2")], B: [b"b"]}
    stage.has({B: (0, LAST)}, 2)
    assert stage.ask(LOW, again=again) == b"b"
    assert stage.ask(LOW) == b"b"
    assert stage.places.count(A) <= 2, "once, and once more while it is found out"
    assert stage.places[-1] == B


def test_nodes_that_send_each_other_around_do_not_do_so_for_ever(stage: Stage) -> None:
    stage.answers = {A: [ErrorReply("MOVED 1 h:2")], B: [ErrorReply("MOVED 1 h:1")]}
    with pytest.raises(StoreUnavailable, match="taken this slot over"):
        stage.ask(LOW, 2.0)
    assert stage.clock.now() <= 2.0
    (unanswered,) = stage.ask_all(LOW, timeout=2.0)
    assert isinstance(unanswered, StoreUnavailable), "a refusal that no user of a Cluster can make sense of"


def test_a_slot_on_the_move_is_asked_for_aside_once_and_the_map_stays(stage: Stage) -> None:
    stage.answers = {A: [ErrorReply("ASK 1 h:3")], C: [b"OK", b"c"]}
    assert stage.ask(LOW) == b"c"
    assert stage.asked[-1][1].startswith(ASKING)
    assert not any(request.startswith(ASKING) for place, request in stage.asked if place == A)
    stage.answers = {A: [b"a"]}
    assert stage.ask(LOW) == b"a"


def test_a_slot_on_the_move_is_waited_for_until_the_time_is_up(stage: Stage) -> None:
    stage.answers = {A: [*[ErrorReply("TRYAGAIN")] * 20, b"a"]}
    assert stage.ask(LOW, 5.0) == b"a"
    stage.answers = {A: [ErrorReply("TRYAGAIN")]}
    began = stage.clock.now()
    assert stage.ask(LOW, 2.0).code == "TRYAGAIN"
    assert 1.5 < stage.clock.now() - began <= 2.0


def test_a_release_does_not_wait_long_for_a_slot_on_the_move(stage: Stage) -> None:
    stage.answers = {A: [ErrorReply("TRYAGAIN")]}
    assert stage.ask(LOW, 5.0, again=False).code == "TRYAGAIN"
    assert stage.clock.now() < 1.0


def test_a_cluster_that_is_down_is_asked_until_it_is_up_or_the_time_is(stage: Stage) -> None:
    down = ErrorReply("CLUSTERDOWN The cluster is down")
    stage.answers = {A: [*[down] * 5, b"a"]}
    assert stage.ask(LOW, 5.0, again=False) == b"a", "nothing was done: it may be repeated"
    stage.answers = {A: [down]}
    assert stage.ask(LOW, 1.0).code == "CLUSTERDOWN"
    assert stage.clock.now() < 7.0


def test_a_silent_node_is_asked_again_only_where_that_is_harmless(stage: Stage) -> None:
    stage.answers = {A: [SILENT, b"a"]}
    with pytest.raises(StoreUnavailable, match="did not answer"):
        stage.ask(LOW, again=False)
    assert stage.places == [A]
    stage.answers = {A: [SILENT, b"a"]}
    assert stage.ask(LOW) == b"a"


def test_what_was_never_sent_is_sent_again(stage: Stage) -> None:
    stage.answers = {A: [Unreached("refused"), Unreached("refused"), b"a"]}
    assert stage.ask(LOW, again=False) == b"a"
    stage.answers = {A: [Unreached("refused")]}
    with pytest.raises(StoreUnavailable, match="refused"):
        stage.ask(LOW, 2.0, again=False)


def test_a_silent_node_is_left_for_the_one_that_took_over(stage: Stage) -> None:
    told: list[str] = []
    stage.topology.on_change = lambda: told.append("change")
    stage.answers = {A: [SILENT], C: [b"c"], B: [b"b"]}
    stage.has({C: (0, HALF - 1), B: (HALF, LAST)}, 2)
    assert stage.ask(LOW, 5.0) == b"c"
    assert stage.places == [A, C]
    assert told == ["change"]


@pytest.mark.parametrize("thousandth", range(100, 200, 3))
def test_no_attempt_is_so_short_that_all_it_could_tell_is_that_the_time_is_up(
    stage: Stage, thousandth: int
) -> None:
    stage.answers = {A: [Unreached("its certificate is not trusted")]}
    with pytest.raises(StoreUnavailable, match="its certificate"):
        stage.ask(LOW, timeout=thousandth / 1000)
    assert len(stage.limits) > 2
    assert min(stage.limits) >= 0.019


def test_a_silent_node_does_not_outlast_the_time(stage: Stage) -> None:
    stage.answers = {A: [SILENT]}
    with pytest.raises(StoreUnavailable):
        stage.ask(LOW, 4.0)
    assert stage.clock.now() <= 4.1
    assert len(stage.asked) > 1


@pytest.mark.parametrize("again", [True, False])
def test_what_the_old_master_says_after_the_new_one_was_met_counts_for_nothing(
    stage: Stage, again: bool
) -> None:
    def late() -> bytes:
        stage.has({C: (0, HALF - 1), B: (HALF, LAST)}, 2)
        stage.topology._adopt(stage.map)  # by another thread, while this answer was under way
        return b"old"

    stage.answers = {A: [late], C: [b"new"]}
    if again:
        assert stage.ask(LOW) == b"new"
    else:
        with pytest.raises(StoreUnavailable, match="taken this slot over"):
            stage.ask(LOW, again=False)
        assert stage.places == [A], "it may have been done: it is not sent twice"


def test_an_answer_stands_when_the_map_was_only_confirmed_meanwhile(stage: Stage) -> None:
    def confirmed() -> bytes:
        stage.topology._adopt(stage.map)
        return b"a"

    stage.answers = {A: [confirmed]}
    assert stage.ask(LOW, again=False) == b"a"
    assert stage.places == [A]


def test_a_closed_leaf_of_a_node_that_left_is_no_closed_client(stage: Stage) -> None:
    stage.answers = {A: [b"a"], C: [b"c"]}
    assert stage.ask(LOW) == b"a"
    drive(stage.shards._transports[A].close())
    stage.has({C: (0, HALF - 1), B: (HALF, LAST)}, 2)
    stage.topology.suspect(A)
    assert stage.ask(LOW, again=False) == b"c"
    drive(stage.shards.close())
    with pytest.raises(ClientClosed):
        stage.ask(LOW)


class TestManyAtOnce:
    def test_each_node_is_asked_once_for_all_that_is_for_it(self, stage: Stage) -> None:
        stage.answers = {A: [b"a1", b"a2"], B: [b"b"]}
        assert stage.ask_all(LOW, HIGH, LOW) == [b"a1", b"b", b"a2"]
        assert sorted(stage.places) == [A, B]

    def test_a_silent_node_leaves_the_others_answered_and_is_given_up_in_time(self, stage: Stage) -> None:
        stage.answers = {A: [SILENT], B: [b"b"]}
        for _ in range(3):
            began = stage.clock.now()
            silent, answered = stage.ask_all(LOW, HIGH, timeout=4.0)
            assert isinstance(silent, StoreUnavailable)
            assert answered == b"b"
            assert stage.clock.now() - began < 4.0
            assert stage.places.count(B) == 1
            stage.asked.clear()
        stage.ask_all(LOW, HIGH, timeout=4.0)
        assert stage.places[0] == B, "the one in trouble comes last"

    def test_what_moved_and_what_is_not_known_yet_is_asked_for_again(self, stage: Stage) -> None:
        stage.answers = {A: [ErrorReply("MOVED 1 h:2")], B: [ErrorReply("NOSCRIPT"), b"high", b"low"]}
        stage.has({B: (0, LAST)}, 2)
        stage.world.says[1] = stage.world.says[2]
        low, high = stage.ask_all(LOW, HIGH)
        assert {low, high} == {b"high", b"low"}
        assert any(b"source" in request for _, request in stage.asked)

    def test_a_slot_on_the_move_is_told_at_once(self, stage: Stage) -> None:
        stage.answers = {A: [ErrorReply("TRYAGAIN")], B: [ErrorReply("ASK 1 h:3")]}
        assert [answer.code for answer in stage.ask_all(LOW, HIGH)] == ["TRYAGAIN", "ASK"]
        assert len(stage.asked) == 2
