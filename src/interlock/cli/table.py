"""Aligned columns, cut to the width of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Cell: TypeAlias = str | tuple[str, ...]
"""A text, or several forms of it, the longest first."""

GAP = "  "
JOINING = "\u200d\ufe0e\ufe0f"  # the joiner of emoji, and the selectors of their form
MIN_COLUMN_WIDTH = 12  # a column is not cut below this: what is left would say nothing


def columns(text: str) -> int:
    """How many columns a terminal takes for it: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) or c in JOINING else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns: its middle gives way, for names differ at their ends."""
    if columns(text) <= width:
        return text
    left, right = width // 2, (width - 1) // 2
    return _fitting(text, left) + "…" + _fitting(text[::-1], right)[::-1]


def _fitting(text: str, width: int) -> str:
    """As much of the beginning of a text as fits; one pass, because a name from a store may be long."""
    taken = 0
    for end, character in enumerate(text):
        taken += columns(character)
        if taken > width:
            return text[:end]
    return text


def fitted(cell: Cell, width: int) -> str:
    """The longest form of the cell that fits; its last one cut if none does."""
    if isinstance(cell, str):
        return cut(cell, width)
    return next((form for form in cell if columns(form) <= width), cut(cell[-1], width))


def _whole(cell: Cell) -> int:
    return columns(cell if isinstance(cell, str) else cell[0])


def _least(cell: Cell) -> int:
    return columns(cell if isinstance(cell, str) else cell[-1])


def widths(rows: Sequence[Sequence[Cell]], width: int | None, first: Sequence[int] = ()) -> list[int]:
    """How wide each column is, so that all fit into `width`.

    The columns `first` give way before the others, in this order, as far as their cells have shorter forms;
    then the widest, one column at a time. What a shorter form leaves over goes to the columns that were cut.
    """
    by_column = list(zip(*rows, strict=True))
    whole = [max(map(_whole, cells)) for cells in by_column]
    if width is None:
        return whole
    wide, room = list(whole), width - len(GAP) * (len(whole) - 1)
    for index in first:
        least = max(map(_least, by_column[index]))
        wide[index] = max(least, wide[index] - max(0, sum(wide) - room))
    while sum(wide) > room and max(wide) > MIN_COLUMN_WIDTH:
        wide[wide.index(max(wide))] -= 1
    wide = [_needed(cells, size) for cells, size in zip(by_column, wide, strict=True)]
    for index, cells in enumerate(by_column):
        more = wide[index] + max(0, room - sum(wide))
        wide[index] = _needed(cells, min(more, whole[index]))
    return wide


def _needed(cells: Sequence[Cell], width: int) -> int:
    return max(columns(fitted(cell, width)) for cell in cells)


def lines(
    rows: Sequence[Sequence[Cell]], width: int | None = None, first: Sequence[int] = ()
) -> list[list[str]]:
    """The rows with every cell padded to its column, and shortened to fit; columns that nobody fills stay
    empty.
    """
    if not rows:
        return []
    wide = widths(rows, width, first)
    return [
        [
            (shown := fitted(cell, size)) + " " * (size - columns(shown))
            for cell, size in zip(row, wide, strict=True)
        ]
        for row in rows
    ]
