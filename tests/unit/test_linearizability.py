"""The judge of registers: which answers one register can have given, and which no order of the calls explains."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interlock.testing.history import Record
from interlock.testing.linearizability import (
    Operation,
    TooManyStates,
    operations_by_register,
    unexplained,
)


def get(began: float, ended: float, value: int, version: int, name: str = "a") -> Operation:
    return Operation(name, "get", "ok", began, ended, value, version)


def put(began: float, ended: float, value: int, version: int, over: int, name: str = "a") -> Operation:
    return Operation(name, "put", "ok", began, ended, value, version, over)


def refused(began: float, ended: float, over: int) -> Operation:
    return Operation("a", "put", "fail", began, ended, 99, 0, over)


def unanswered(began: float, value: int, over: int, name: str = "lost") -> Operation:
    return Operation(name, "put", "info", began, value=value, expected=over)


INNOCENT: dict[str, list[Operation]] = {
    "nothing happened": [],
    "an empty register": [get(0, 1, 0, 0)],
    "a write is read": [put(0, 1, 5, 10, 0), get(2, 3, 5, 10)],
    "a read beside a write sees the old value": [put(0, 3, 5, 10, 0), get(1, 2, 0, 0)],
    "a read beside a write sees the new value": [put(0, 3, 5, 10, 0), get(1, 2, 5, 10)],
    "two reads beside a write, old then new": [put(0, 9, 5, 10, 0), get(1, 2, 0, 0), get(3, 4, 5, 10)],
    "of two writes at once one is refused": [put(0, 3, 5, 10, 0), refused(1, 4, 0)],
    "a refusal may come before the write has ended": [put(0, 9, 5, 10, 0), refused(1, 2, 0)],
    "a write without an answer is never seen": [unanswered(0, 5, 0), get(1, 2, 0, 0), get(3, 4, 0, 0)],
    "a write without an answer is seen at once": [unanswered(0, 5, 0), get(1, 2, 5, 10)],
    "a write without an answer is seen late": [unanswered(0, 5, 0), get(1, 2, 0, 0), get(8, 9, 5, 10)],
    "others write over what had no answer": [
        unanswered(0, 5, 0), get(1, 2, 5, 10), put(3, 4, 6, 12, 10), get(5, 6, 6, 12),
    ],
    "a deletion": [put(0, 1, 5, 10, 0), put(2, 3, 0, 11, 10), get(4, 5, 0, 11), put(6, 7, 8, 12, 11)],
    "a read without an answer says nothing": [
        put(0, 1, 5, 10, 0), Operation("b", "get", "info", 2), get(3, 4, 5, 10),
    ],
}  # fmt: skip

GUILTY: dict[str, tuple[str, list[Operation]]] = {
    "a stale read": ("b", [put(0, 1, 5, 10, 0), get(2, 3, 0, 0, "b")]),
    "a value that nobody wrote": ("b", [get(0, 1, 7, 3, "b")]),
    "new, then old again": ("b", [put(0, 9, 5, 10, 0), get(1, 2, 5, 10), get(3, 4, 0, 0, "b")]),
    "a lost update": ("b", [put(0, 1, 5, 10, 0), put(2, 3, 6, 11, 0, "b")]),
    "both of two writes over one version": ("a", [put(0, 3, 5, 10, 0), put(0, 4, 6, 11, 0, "b")]),
    "a version that falls": ("b", [put(0, 1, 5, 10, 0), put(2, 3, 6, 9, 10, "b")]),
    "a refusal though nobody had written": ("a", [put(0, 1, 5, 10, 0), refused(2, 3, 10)]),
    "a write without an answer that is undone": (
        "b", [unanswered(0, 5, 0), get(1, 2, 5, 10), get(3, 4, 0, 0, "b")],
    ),
    "a write without an answer that counts twice": (
        "b", [unanswered(0, 5, 0), get(1, 2, 5, 10), put(3, 4, 6, 12, 10), get(5, 6, 5, 13, "b")],
    ),
    "a write seen before it began": ("b", [get(0, 1, 5, 10, "b"), put(2, 3, 5, 10, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("what", INNOCENT)
def test_an_order_explains(what: str) -> None:
    assert unexplained(INNOCENT[what]) is None


@pytest.mark.parametrize("what", GUILTY)
def test_no_order_explains(what: str) -> None:
    name, operations = GUILTY[what]
    found = unexplained(operations)
    assert found is not None
    if what != "both of two writes over one version":  # either of them
        assert found.name == name


class OneRegister:
    """A register as it should be, whose calls take effect at random instants, and lose some answers."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._value, self._version = 0, 0
        self._seen = [0]

    def history(self, length: int, clients: int) -> list[Operation]:
        """Calls of some clients, each after the other, whose instants of effect are in a random order."""
        free = [0.0] * clients
        begun: list[tuple[float, float, float, int]] = []  # effect, begin, end, client
        for _ in range(length):
            client = self._chance.randrange(clients)
            began = free[client] + self._chance.random()
            effect, ended = sorted(began + self._chance.random() for _ in range(2))
            free[client] = ended
            begun.append((effect, began, ended, client))
        return [self._call(number, *one) for number, one in enumerate(sorted(begun))]

    def _call(self, number: int, effect: float, began: float, ended: float, client: int) -> Operation:
        name = f"{client}-{number}"
        if self._chance.random() < 0.5:
            self._seen.append(self._version)
            return get(began, ended, self._value, self._version, name)
        expected = self._chance.choice(self._seen[-2:])
        hits, lost = expected == self._version, self._chance.random() < 0.15
        if hits:
            self._value, self._version = number + 1, self._version + self._chance.randrange(1, 5)
        if lost:
            return Operation(name, "put", "info", began, value=number + 1, expected=expected)
        outcome: Any = "ok" if hits else "fail"
        return Operation(name, "put", outcome, began, ended, number + 1, self._version * hits, expected)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_right_register_answers_is_explained(seed: int) -> None:
    assert unexplained(OneRegister(seed).history(200, 5)) is None


@pytest.mark.parametrize("seed", range(40))
def test_a_wrong_answer_among_right_ones_is_found(seed: int) -> None:
    operations = OneRegister(seed).history(120, 3)
    reads = [n for n, one in enumerate(operations) if one.kind == "get" and one.version]
    wrong = random.Random(seed).choice(reads)
    old = operations[wrong]
    operations[wrong] = get(old.began, old.ended, old.value, old.version + 1000, old.name)
    assert unexplained(operations) is not None


def test_a_history_that_is_too_large_is_not_called_innocent() -> None:
    crowd = [put(0, 9, n + 1, n + 1, n, str(n)) for n in range(18)]
    reads = [get(0, 9, 0, 0, f"r{n}") for n in range(18)]
    with pytest.raises(TooManyStates):
        unexplained([*crowd, *reads])


def test_the_calls_of_a_history_are_told_apart_by_register_and_by_process() -> None:
    def said(time: float, call: str, kind: Any, process: str = "p1", key: str = "k", **rest: Any) -> Record:
        return Record(time, process, call, kind, attempt="1", resource=key, **rest)

    found = operations_by_register(
        [
            said(0, "put", "invoke", value=5, expected=0),
            said(1, "put", "ok", token=10),
            said(2, "get", "invoke", "p2"),
            said(3, "get", "ok", "p2", value=5, token=10),
            said(4, "put", "invoke", "p3", value=6, expected=10),
            said(5, "put", "invoke", "p4", "other", value=7, expected=0),
            said(6, "put", "fail", "p4", "other"),
        ]
    )
    assert {key: [one.outcome for one in calls] for key, calls in found.items()} == {
        "k": ["ok", "ok", "info"],
        "other": ["fail"],
    }
    assert unexplained(found["k"]) is None
