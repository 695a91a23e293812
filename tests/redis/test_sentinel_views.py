"""When a majority of the sentinels is known to have agreed on a master, by what those say that answer."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.backends.redis.sentinel.views import (
    NEVER,
    ReportedMaster,
    SentinelView,
    agreed_at,
    counted,
    read_view,
)

NOW = 1000.0
OURS = ReportedMaster(3, "10.0.0.1", 6379, 2)
OTHER = ReportedMaster(4, "10.0.0.2", 6379, 2)


def view(
    id: str, master: ReportedMaster = OURS, sentinels: int = 3, heard: dict[str, float] | None = None
) -> SentinelView:
    return SentinelView(master, id, sentinels, tuple((heard or {}).items()))


@pytest.mark.parametrize(
    ("views", "agreed"),
    [
        ([view("a"), view("b")], NOW),
        ([view("a")], NEVER),
        ([view("a", sentinels=1)], NOW),
        ([view("a"), view("a")], NEVER),  # two addresses of one sentinel
        ([view("a"), view("b", OTHER)], NEVER),
        ([view("a"), view("b", OTHER), view("c")], NOW),
        ([view("a"), view("b", sentinels=5)], NEVER),  # a majority of all that one of them knows
        ([view(""), view("")], NOW),  # they do not tell who they are
    ],
)
def test_those_that_answer_count(views: list[SentinelView], agreed: float) -> None:
    assert agreed_at(views, OURS, NOW) == agreed


@pytest.mark.parametrize(
    ("views", "agreed"),
    [
        ([view("a", heard={"b": 1.5, "c": 40.0})], NOW - 1.5),
        ([view("a", heard={"b": 40.0, "c": 41.0})], NOW - 40.0),
        ([view("a", sentinels=5, heard={"b": 1.0, "c": 2.0, "d": 3.0})], NOW - 2.0),
        ([view("a", heard={"b": 9.0}), view("d", heard={"b": 1.0}, sentinels=5)], NOW - 1.0),
        # One that speaks for itself is not vouched for.
        ([view("a", heard={"b": 0.5}), view("b", OTHER)], NEVER),
        # Nor does it matter whom those have heard that name another.
        ([view("a"), view("b", OTHER, heard={"c": 0.5})], NEVER),
        # Nobody knows whether it is one of those that were heard.
        ([view("", heard={"b": 0.5})], NEVER),
    ],
)
def test_those_that_they_have_heard_count_as_of_then(views: list[SentinelView], agreed: float) -> None:
    assert agreed_at(views, OURS, NOW) == agreed


def test_if_no_more_can_be_asked_what_was_heard_lately_counts_as_of_now() -> None:
    views = [view("a", heard={"b": 1.5, "c": 40.0})]
    assert agreed_at(views, OURS, NOW, hearsay=3.0) == NOW
    assert agreed_at([view("a", heard={"b": 5.0})], OURS, NOW, hearsay=3.0) == NOW - 2.0


def test_a_failover_raises_the_epoch_before_the_address_changes() -> None:
    promoted = ReportedMaster(4, OURS.host, OURS.port, 2)
    assert promoted.same_as(OURS)
    assert not promoted.same_as(OTHER)


def words(**facts: Any) -> list[bytes]:
    named = ((name.replace("_", "-").encode(), str(value).encode()) for name, value in facts.items())
    return [word for pair in named for word in pair]


def test_a_sentinel_that_tells_no_more_than_the_master_is_understood() -> None:
    master = words(ip="h", port=6379, config_epoch=7, num_slaves=1, num_other_sentinels=2)
    assert read_view(master, None, None) == SentinelView(ReportedMaster(7, "h", 6379, 1), "", 3, ())
    others = [words(runid="b", last_hello_message=1500), words(runid="c"), words(runid="", flags="sentinel")]
    assert read_view(master, b"a", others).heard == ()


def entry(**facts: Any) -> list[bytes]:
    """A sentinel that another one hears, as that one lists it."""
    said = {"flags": "sentinel", "last_ping_sent": 0, "last_ok_ping_reply": 400, "last_hello_message": 1500}
    return words(runid="b", **{**said, **facts})


@pytest.mark.parametrize(
    ("since", "facts", "heard"),
    [
        (60_000, {}, True),
        (60_000, {"last_ping_sent": 300, "last_ok_ping_reply": 1400}, True),  # the next ping is on its way
        (
            60_000,
            {"last_hello_message": 40_000, "last_ok_ping_reply": 40_000, "last_ping_sent": 39_000},
            True,
        ),
        (60_000, {"flags": "sentinel,disconnected"}, False),
        (60_000, {"flags": "s_down,sentinel"}, False),
        (60_000, {"flags": ""}, False),
        # Since it began, it has known the other from its file only: that is all that these times say.
        (703, {"last_ping_sent": 703, "last_ok_ping_reply": 703, "last_hello_message": 703}, False),
        (703, {"last_ping_sent": 703, "last_ok_ping_reply": 704, "last_hello_message": 701}, False),
        # It took long to read its file, and nobody has answered it since.
        (9000, {"last_ping_sent": 703, "last_ok_ping_reply": 703, "last_hello_message": 703}, False),
        # The other has answered, but has not told yet which master it knows.
        (1500, {"last_hello_message": 1499}, False),
        (1500, {"last_hello_message": 900}, True),
    ],
)
def test_only_a_sentinel_that_has_told_its_master_and_is_in_reach_was_heard(
    since: int, facts: dict[str, Any], heard: bool
) -> None:
    master = words(ip="h", port=6379, num_other_sentinels=1, role_reported_time=since)
    assert bool(read_view(master, b"a", [entry(**facts)]).heard) is heard


def test_nobody_was_heard_by_a_sentinel_that_does_not_tell_since_when_it_listens() -> None:
    assert read_view(words(ip="h", port=6379), b"a", [entry()]).heard == ()


@pytest.mark.parametrize(
    ("views", "before", "count"),
    [
        ([view("a")], 0, 3),
        ([view("a", sentinels=5), view("b")], 3, 5),
        # One that has lost its memory counts itself alone, or those on its side.
        ([view("a", sentinels=1)], 3, 3),
        ([view("a", sentinels=2), view("b", sentinels=2)], 5, 5),
        ([view("a", sentinels=1), view("a", sentinels=1)], 3, 3),  # two addresses of one sentinel
        # Somebody has removed the dead ones: most of all that there were say so.
        ([view("a"), view("b"), view("c")], 5, 3),
        ([view("a"), view("b", heard={"c": 2.0})], 5, 3),
        ([view("a"), view("b", heard={"c": 9.0})], 5, 5),
        ([view("a", sentinels=2), view("b", sentinels=2)], 3, 2),
        ([view(""), view("")], 5, 5),
        ([view("", heard={"b": 1.0}), view("", heard={"a": 1.0})], 5, 5),  # they may be those that were heard
    ],
)
def test_sentinels_are_forgotten_only_if_a_majority_of_all_that_were_known_is_there(
    views: list[SentinelView], before: int, count: int
) -> None:
    assert counted(views, before) == count


def test_a_majority_is_one_of_all_that_were_known() -> None:
    alone = [view("a", sentinels=1)]
    assert agreed_at(alone, OURS, NOW, known=3) == NEVER
    assert agreed_at([*alone, view("b")], OURS, NOW, known=3) == NOW
    assert agreed_at([*alone, view("b")], OURS, NOW, known=5) == NEVER
