"""Which node a name has: a usual name its own, every other one an escaped one, and no two the same."""

from __future__ import annotations

import random

import pytest

from interlock.backends.zookeeper.paths import (
    MAX_SEQUENCE,
    ClaimNode,
    Paths,
    claim_nodes,
    claim_prefix,
    counts,
    escaped,
    unescaped,
)
from interlock.model import EVERYTHING
from interlock.store import WAITERS

ODD = [
    "a/b",
    "a%2Fb",
    "%",
    ".",
    "..",
    ".gone",
    "..a",
    "a.b",
    " ",
    "\x1f",
    "ä",
    "日本",
    "🔒",
    "\uffee",
    "\ufff5",
    "a" + WAITERS,
]


@pytest.mark.parametrize("name", ODD)
def test_a_name_comes_back_from_its_node(name: str) -> None:
    element = escaped(name)
    assert unescaped(element) == name
    assert "/" not in element
    assert not element.startswith(".")
    assert all(ord(letter) < 0xD800 or 0xF900 <= ord(letter) < 0xFFF0 for letter in element)


def test_usual_names_stay_as_they_are() -> None:
    for name in ("orders", "report:daily", "a-b_c", "Ünïcode"):
        assert escaped(name) == name


def test_no_two_names_share_a_node() -> None:
    chance = random.Random(3)
    names = {
        "".join(chance.choice("a./%2Fé🔒\x1f") for _ in range(chance.randint(1, 5))) for _ in range(20_000)
    }
    assert len({escaped(name) for name in names}) == len(names)


def test_what_is_not_ours_has_no_name() -> None:
    for element in (".registers", ".gone", "a%", "%zz", "%2f", "%ff"):
        assert unescaped(element) is None


def test_a_queue_is_read_from_the_names_of_its_nodes() -> None:
    children = [
        "x-1-1-3__lock__0000000007",
        "y-2-2-3__lock__0000000003",
        f"{'0' * 32}__lock__0000000005",
        "x-1-0__shrunk",
        "config",
        "y-2-1-3__lock__12",
    ]
    assert claim_nodes(children) == [
        ClaimNode(3, "y-2-2-3__lock__0000000003", "y-2", 2, 3),
        ClaimNode(5, f"{'0' * 32}__lock__0000000005", f"{'0' * 32}__lock__0000000005", EVERYTHING, 0),
        ClaimNode(7, "x-1-1-3__lock__0000000007", "x-1", 0, 3, ("x-1-0__shrunk",)),
    ]


def test_a_claim_whose_number_is_near_the_end_of_the_numbers_does_not_count() -> None:
    prefix = claim_prefix("a", 1, 1)
    assert counts(f"{prefix}0000000000")
    assert counts(f"{prefix}{MAX_SEQUENCE - 1}")
    assert not counts(f"{prefix}{MAX_SEQUENCE}")
    assert not counts(f"{prefix}{2**31 - 1}")
    assert not counts(f"{prefix}{-(2**31)}")


def test_an_id_may_have_any_letters() -> None:
    node = claim_prefix("a/b-7", 1, 2) + "0000000001"
    assert claim_nodes([node]) == [ClaimNode(1, node, "a/b-7", 1, 2)]


def test_a_chroot_stands_before_everything() -> None:
    assert Paths("/a/b").folder("x/y") == "/a/b/interlock/x%2Fy"
    assert Paths("").register("x") == "/interlock/.registers/x"
