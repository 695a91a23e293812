"""What is shipped, and what must not be: variants of the rules of numbers, each with its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from interlock.lab.model import shipped

Accept = Callable[[int, int, int, int], "tuple[int, int] | None"]
"""(number seen, its setter, ballot, id) to (number, setter) afterwards; None: refused."""

Rule = Callable[[int, int], int]
Usual = Callable[[int, int, int], "int | None"]
"""(number, floor, ballot) to the number afterwards; None: not accepted."""


def accept_again(seen: int, setter: int, ballot: int, id: int) -> tuple[int, int] | None:
    """Whoever set it."""
    return (ballot, id) if ballot >= seen else None


def accept_from_setter(seen: int, setter: int, ballot: int, id: int) -> tuple[int, int] | None:
    """Also the same number again, if the same id set it."""
    return (ballot, id) if ballot > seen or (ballot == seen and setter == id) else None


def usual_whatever(number: int, floor: int, ballot: int) -> int | None:
    """A number is made where there is none: the floor is not asked."""
    return ballot if ballot > number else None


def keeps_numbers(number: int, read: int) -> tuple[int, int]:
    """A node that is admitted has the numbers that it came back with."""
    return number, read


def accept_counting(seen: int, setter: int, ballot: int, id: int) -> tuple[int, int] | None:
    """Each node counts up for itself, and nobody compares what they say."""
    return (seen if setter == id else max(seen + 1, ballot), id)


def fill_sets(seen: int, token: int) -> int:
    """Whatever the node has seen."""
    return token


def field_or_floor(number: int, floor: int) -> int:
    """The floor counts only where there is no number."""
    return number or floor


def prune_bare(number: int, floor: int) -> int:
    """The number is gone, and nothing remembers it."""
    return floor


@dataclass(frozen=True, slots=True)
class Variant:
    """The rules of one model, the faults it must stand, and what is to be found."""

    name: str
    text: str
    guilty: bool = False
    accept: Accept = shipped.accept
    grant: Literal["one number", "highest"] = "one number"  # what a majority has to agree on
    ids: Literal["attempt", "client"] = "attempt"
    rounds: int = 0  # further rounds with a higher ballot
    usual: Usual | None = None
    admitted: Callable[[int, int], tuple[int, int]] = (
        shipped.admitted
    )  # (number it came back with, floor read) to both
    fill: Rule = shipped.fill  # (seen, token) to what is seen afterwards
    fill_needs_majority: bool = True
    exceed: Rule = shipped.exceed  # (number, floor) to what a ballot has to exceed
    prune: Rule | None = None  # (number, floor) to the floor afterwards
    loses: Literal["all", "newest"] = "all"
    faults: int = 0
    marker: bool = True  # a node that lost something knows, and has no vote
    admit: Literal["never", "quiet", "any time", "read early", "no compare"] = "never"
    asks_fewer: int = 0  # readmission reads so many nodes less than a majority
    asks_all: bool = False  # ... also those without a vote
    others: bool = True  # an environment of any number of further attempts
    attempts: int = 2  # that are watched
    nodes: int = 3
    top: int = 3
    deep: tuple[int, int] = (3, 4)  # nodes and top of the search on demand


SHIPPED = [
    Variant("ballots", "nodes that keep their memory; one round", deep=(5, 2)),
    Variant("rounds", "a second round with a higher ballot", rounds=1),
    Variant("pruned", "numbers of idle names become the node's floor", rounds=1, prune=shipped.pruned),
    Variant("marked", "a node that lost its memory has no vote", faults=1),
    Variant("marked, two lost", "two of five lose their memory", faults=2, nodes=5, top=1, deep=(5, 2)),
    Variant("quarantined", "... and gets it back, with a floor, after quarantine", faults=1, admit="quiet"),
    Variant(
        "rolled back",
        "a node comes back with old numbers, has no vote, and gets it back with a floor above them",
        loses="newest",
        faults=1,
        admit="quiet",
    ),
    Variant("twice", "nodes lose their memory and are readmitted again and again", faults=2, admit="quiet"),
    Variant(
        "usual",
        "usual votes, which see only the number of the name, beside pruning, loss and readmission",
        usual=shipped.usual,
        prune=shipped.pruned,
        loses="newest",
        faults=1,
        admit="quiet",
        top=2,
        deep=(3, 3),
    ),
    Variant(
        "all of it",
        "second rounds, usual votes, pruning, loss and readmission together",
        rounds=1,
        usual=shipped.usual,
        prune=shipped.pruned,
        loses="newest",
        faults=1,
        admit="quiet",
        top=2,
        deep=(3, 3),
    ),
    Variant(
        "unchecked fill",
        "a fill that does not ask whether a majority holds: harmless to tokens, see leases.py",
        fill_needs_majority=False,
        faults=1,
        admit="quiet",
    ),
]

BROKEN = [
    Variant(
        "naive max", "the token is the highest that a majority answers", True, accept_counting, "highest"
    ),
    Variant("naive le", "a node accepts what it has, whoever set it", True, accept_again),
    Variant(
        "client ids",
        "a node accepts what the same id set, and two attempts of one client share an id",
        True,
        accept_from_setter,
        ids="client",
    ),
    Variant(
        "usual and rolled back",
        "a usual vote meets a number that was rolled back, below the floor",
        True,
        loses="newest",
        faults=1,
        admit="quiet",
        usual=shipped.usual,
        admitted=keeps_numbers,
    ),
    Variant(
        "usual without a number",
        "a usual vote makes a number where there is none",
        True,
        prune=shipped.pruned,
        usual=usual_whatever,
    ),
    Variant("no marker", "a node loses its memory and goes on", True, faults=1, marker=False),
    Variant(
        "no run id",
        "a node loses the tail of its log and goes on",
        True,
        loses="newest",
        faults=1,
        marker=False,
    ),
    Variant("no quarantine", "readmitted while attempts are under way", True, faults=1, admit="any time"),
    Variant(
        "floor read early",
        "the floor is read during the quarantine, the vote given after it",
        True,
        faults=1,
        admit="read early",
    ),
    Variant(
        "floor of too few",
        "the floor is read from less than a majority",
        True,
        faults=1,
        admit="quiet",
        asks_fewer=1,
    ),
    Variant(
        "floor of the blank",
        "the floor is read from nodes without a vote, too",
        True,
        faults=2,
        admit="quiet",
        asks_all=True,
        others=False,
        nodes=5,
        top=2,
        deep=(5, 2),
    ),
    Variant(
        "floor overruled",
        "numbers that were rolled back count before the floor",
        True,
        loses="newest",
        faults=1,
        admit="quiet",
        exceed=field_or_floor,
        admitted=keeps_numbers,
    ),
    Variant(
        "late admission", "a late admission meets the node's next life", True, faults=2, admit="no compare"
    ),
    Variant(
        "lowering fill",
        "a fill sets the number, whatever the node has seen",
        True,
        fill=fill_sets,
        attempts=3,
        top=2,
        others=False,
    ),
    Variant("bare prune", "a number is forgotten without a floor", True, prune=prune_bare),
]
