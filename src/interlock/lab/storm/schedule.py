"""Which faults come, and in which order: decided by a seed alone, so that a run can be had again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol, TypeVar


class Weighted(Protocol):
    """Something that is drawn `weight` times from each deck."""

    @property
    def weight(self) -> int: ...


Card = TypeVar("Card", bound=Weighted)


def drawn(cards: Sequence[Card], chance: Random, *, once: bool = False) -> Iterator[Card]:
    """Draw for ever: every card comes by its weight, or `once`, before any comes again.

    The order is the seed's. Chance alone would leave some out for long.
    """
    while True:
        deck = [card for card in cards for _ in range(1 if once else card.weight)]
        chance.shuffle(deck)
        yield from deck
