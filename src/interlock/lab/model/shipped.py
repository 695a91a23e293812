"""The rules of the shipped node, asked of the node itself: the model searches what is shipped, not what was
meant.
"""

from __future__ import annotations

from functools import cache

from interlock.backends.redlock.wire.requests import TOO_LOW, Admit, CheckIn, Vote
from interlock.model import Claim
from interlock.testing.redlock_node import MIN_NUMBERS_KEPT, OLD_US, NodeMemory

LATER = 10 * OLD_US  # by when a number of the model is old
SEAT = b":1"


def _node(number: int, floor: int) -> NodeMemory:
    node = NodeMemory(lambda: LATER)
    node.quorum = {"run": node.run, "vote": node.run, "seat": SEAT, "floor": floor}
    if number:
        node.numbers["r"] = number
    return node


@cache
def accept(seen: int, setter: int, ballot: int, id: int) -> tuple[int, int] | None:
    """The number, and the attempt that set it, after a vote; None when the ballot is too low."""
    node = _node(seen, 0)
    said = node.answer(Vote(Claim("r", str(id), 1.0), ballot))
    if isinstance(said, list):
        assert said[1] == TOO_LOW
        return None
    return node.numbers["r"], id


@cache
def usual(number: int, floor: int, ballot: int) -> int | None:
    """The number after a vote that names the node's seat; None if it was not accepted."""
    node = _node(number, floor)
    said = node.answer(Vote(Claim("r", "asks", 1.0), ballot, seats=(SEAT,)))
    return None if isinstance(said, list) else node.numbers["r"]


@cache
def fill(seen: int, token: int) -> int:
    """What a ballot has to exceed after a holder filled in its claim."""
    node = _node(seen, 0)
    node.answer(Vote(Claim("r", "filler", 1.0), token, fill=True))
    return exceed(node.numbers.get("r", 0), node.quorum["floor"])


@cache
def exceed(number: int, floor: int) -> int:
    """What a ballot has to exceed on a node with this number, 0 for none, and this floor."""
    said = _node(number, floor).answer(Vote(Claim("r", "asks", 1.0), 0))
    assert isinstance(said, list)
    assert said[1] == TOO_LOW
    return int(said[2])


@cache
def pruned(number: int, floor: int) -> int:
    """The floor after the number was found to be old."""
    node = _node(number, floor)
    node.numbers |= {f"other {n}": LATER for n in range(MIN_NUMBERS_KEPT)}
    node.answer(Vote(Claim("another", "passes by", 1.0), LATER))
    assert "r" not in node.numbers
    return int(node.quorum["floor"])


@cache
def admitted(number: int, read: int) -> tuple[int, int]:
    """The number and the floor of a node that came back with this number and was admitted with this floor."""
    node = _node(number, 0)
    node.run = "another"
    since = node.checkin(CheckIn())[2]
    assert node.answer(Admit(since=since, quarantine=0, floor=read)) == [LATER, 1]
    assert node.votes
    return node.numbers.get("r", 0), int(node.quorum.get("floor", 0))
