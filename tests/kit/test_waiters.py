"""The registry of waiters: whoever waits for a topic is woken, nobody else is, and nobody is left in it."""

from __future__ import annotations

import gc
import threading
from typing import TypeAlias

import pytest

from interlock.backends.kit.waiters import Waiters, WeakWaiters, notify

Kind: TypeAlias = type[Waiters[str, threading.Event]] | type[WeakWaiters[str, threading.Event]]
KINDS = pytest.mark.parametrize("kind", [Waiters, WeakWaiters])


@KINDS
def test_those_of_a_topic_are_found_and_no_others(kind: Kind) -> None:
    waiters, ours, theirs = kind(), threading.Event(), threading.Event()
    waiters.add(ours, "a")
    waiters.add(theirs, "b")
    notify(waiters.of("a"))
    assert ours.is_set()
    assert not theirs.is_set()
    assert waiters.of("c") == []
    assert waiters.everyone() == [ours, theirs]


@KINDS
def test_one_may_wait_for_several_topics_and_several_for_one(kind: Kind) -> None:
    waiters, first, second = kind(), threading.Event(), threading.Event()
    waiters.add(first, "claim", "queue")
    waiters.add(second, "queue")
    waiters.remove(first, "queue")
    assert waiters.of("queue") == [second]
    assert waiters.of("claim") == [first]
    waiters.add(first, "queue")
    waiters.remove(first, "claim", "queue", "another")
    assert waiters.everyone() == [second]


@KINDS
def test_nothing_is_left_of_a_topic_for_which_nobody_waits(kind: Kind) -> None:
    waiters, signal = kind(), threading.Event()
    waiters.add(signal, "a")
    assert waiters
    waiters.remove(signal, "a")
    waiters.remove(signal, "a")  # once more, as whoever is interrupted does
    assert not waiters
    assert not waiters.topics


def test_waking_sets_the_signals_of_a_topic() -> None:
    waiters: Waiters[str, threading.Event] = Waiters()
    signal, other = threading.Event(), threading.Event()
    waiters.add(signal, "a")
    waiters.add(other, "b")
    waiters.wake("a")
    waiters.wake("nobody")
    assert signal.is_set()
    assert not other.is_set()


def test_those_left_behind_count_no_more_and_are_kept() -> None:
    waiters: Waiters[str, threading.Event] = Waiters()
    left, here = threading.Event(), threading.Event()
    waiters.add(left, "a", "b")
    waiters.add(here, "b")
    waiters.abandon(lambda waiter: waiter is left)
    assert waiters.everyone() == [here]
    assert list(waiters.topics) == ["b"]
    assert any(one is left for one in gc.get_objects() if isinstance(one, threading.Event))


def test_one_that_goes_without_a_word_is_not_waited_for() -> None:
    waiters: WeakWaiters[str, threading.Event] = WeakWaiters()
    gone, alone, here = threading.Event(), threading.Event(), threading.Event()
    waiters.add(gone, "a")
    waiters.add(here, "a")
    waiters.add(alone, "b")
    del gone, alone
    assert waiters.everyone() == [here]
    assert {topic: len(found) for topic, found in waiters.topics.items()} == {"a": 1}


def test_whoever_begins_to_wait_after_the_end_is_set_at_once() -> None:
    waiters, early, late = Waiters[str, threading.Event](), threading.Event(), threading.Event()
    waiters.add(early, "a")
    notify(waiters.close())
    assert early.is_set()
    waiters.add(late, "b")
    assert late.is_set()
